"""Filters, smoothing and the chart that links metaparameters with learning curves."""

import io
import json
import re

import polars as pl
import pytest

from batchscale.figures.linked import beside_raw, smooth_curves


def trials_of(site, client) -> pl.DataFrame:
    return pl.read_csv(client.get(f"/x/{site.key()}/trials.csv").content)


def shown(page: str) -> int:
    return page.count('name="t"')


def test_a_filter_by_a_metaparameter_shows_what_lies_between(site):
    client, key = site.visitor(), site.key()
    rates = trials_of(site, client)["learning_rate"].sort()
    low, high = rates[3], rates[8]
    expected = rates.is_between(low, high).sum()
    page = client.get(f"/x/{key}?size=&status=&low0={low}&high0={high}").text
    assert shown(page) == expected < len(rates)
    assert f'value="{low:g}"' in page and f"low0={low}" in page  # the limits stay in form and links


def test_the_form_with_nothing_chosen_shows_everything(site):
    client, key = site.visitor(), site.key()
    form = "size=&status=&order=learning_rate&smooth=0&low0=&high0="
    assert shown(client.get(f"/x/{key}?{form}").text) == trials_of(site, client).height


@pytest.mark.parametrize("query", ["low0=abc", "high0=inf", "low0=nan", "smooth=1", "mx=-1", "size=1e9"])
def test_limits_that_are_no_numbers_are_refused(site, query):
    assert site.visitor().get(f"/x/{site.key()}?{query}").status_code == 422


def test_a_filter_that_nothing_meets_says_so(site):
    assert "No trial matches" in site.visitor().get(f"/x/{site.key()}?low0=1e9").text


def test_the_linked_chart_draws_the_trials_of_the_filter(site):
    client, key = site.visitor(), site.key()
    rows = trials_of(site, client)
    size = rows["batch_size"].max()
    middle = rows.filter(pl.col("batch_size") == size)["learning_rate"].median()
    data = pl.read_csv(io.BytesIO(client.get(f"/x/{key}/linked.csv?size={size}&low0={middle}").content))
    assert data["learning_rate"].min() >= middle and set(data["batch_size"]) == {size}
    spec = json.dumps(client.get(f"/x/{key}/linked.json?size={size}&width=390&theme=dark").json())
    assert '"param": "frame"' in spec and '"columns": 1' in spec
    assert client.get(f"/x/{key}/linked.svg?size={size}").text.startswith("<svg")


def test_smoothing_leaves_the_measurements_in_the_data(site):
    client, key = site.visitor(), site.key()
    size, trial = trials_of(site, client).filter(pl.col("status") == "COMPLETE").select("batch_size", "trial_id").row(0)
    address = f"/x/{key}/chart/training"
    assert client.get(f"{address}.csv?smooth=0.9&t={size}-{trial}").content == client.get(
        f"{address}.csv?t={size}-{trial}").content  # fmt: skip
    rough, smooth = (client.get(f"{address}.json?t={size}-{trial}&smooth={weight}").content for weight in (0, 0.9))
    assert rough != smooth


def test_smoothing_is_the_weighted_mean_of_what_came_before():
    values = [5.0, 1.0, 4.0, 2.0]
    rows = pl.DataFrame({"panel": "a", "series": "x", "trial_id": [7] * 4, "step": [1, 2, 3, 4], "value": values})
    weight = 0.7
    expected = [
        sum(weight ** (n - i) * values[i] for i in range(n + 1)) / sum(weight ** (n - i) for i in range(n + 1))
        for n in range(4)
    ]
    assert smooth_curves(rows, weight)["value"].to_list() == pytest.approx(expected)
    both = beside_raw(rows, weight)
    assert both.filter(pl.col("trial_id") < 0)["value"].to_list() == values


def test_the_free_disk_is_shown(site):
    client = site.visitor()
    for path in ("/", f"/x/{site.key()}"):
        assert re.search(r"\d [kMGT]?B free", client.get(path).text)
