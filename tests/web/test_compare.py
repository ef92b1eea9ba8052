"""Curves side by side: charts to explore and to take away, best learning rates, and what cannot be compared."""

import io
import time

import polars as pl
import pytest
from build_records import METRIC, NAME, curve_studies, study, trial, write_tree

OWN = {"goal": f"{METRIC} < 0.1", "format_version": 1}


def law(sizes):
    return {size: round(400 * (1 + 16 / size)) for size in sizes}


@pytest.fixture
def compared(make_site):
    """A signed-in client, and a function from names of trees to the query that compares them."""
    site = make_site()
    for name, sizes in (("even", (1, 4, 16, 64, 256)), ("also", (4, 16, 64)), ("odd", (2, 8, 32, 128))):
        write_tree(site.folder / name, curve_studies(law(sizes), own=OWN))
    write_tree(site.folder / "goalless", curve_studies(law((1, 4))))
    fast = [trial(1, {0: 1.0, 100: 0.05}, parameters={"learning_rate": 0.4, "momentum": 0.9})]
    write_tree(site.folder / "momentum", {NAME.__class__("toy", "net", "momentum"): [study(4, fast, own=OWN)]})
    client = site.visitor()
    while "being read" in client.get("/").text:
        pass

    def query(*names: str) -> str:
        return "&".join(f"k={site.key(name)}" for name in names)

    return client, query


def test_charts_come_to_explore_to_see_and_to_take_away(compared):
    client, query = compared
    asked = query("even", "also")
    page = client.get(f"/compare?{asked}").text
    for kind in ("curves", "rates"):
        assert f'data-chart="/compare/{kind}.json?' in page
        for suffix in ("svg", "png", "csv"):
            assert f"/compare/{kind}.{suffix}?" in page
        spec = client.get(f"/compare/{kind}.json?{asked}&theme=dark&width=360")
        assert spec.status_code == 200 and "zoom_0" in spec.text
        assert client.get(f"/compare/{kind}.png?{asked}").content.startswith(b"\x89PNG")
        drawing = client.get(f"/compare/{kind}.svg?{asked}&save=true")
        assert drawing.text.startswith("<svg") and "attachment" in drawing.headers["content-disposition"]
        assert "sandbox" in drawing.headers["content-security-policy"]


def test_the_data_has_the_curves_and_the_rates_of_their_best_trials(compared):
    client, query = compared
    curves = pl.read_csv(io.StringIO(client.get(f"/compare/curves.csv?{query('even', 'also')}").text))
    assert dict(curves.filter(pl.col("series").str.starts_with("even")).select("batch_size", "steps").rows()) == law(
        (1, 4, 16, 64, 256)
    )
    rates = pl.read_csv(io.StringIO(client.get(f"/compare/rates.csv?{query('even', 'also')}").text))
    also = rates.filter(pl.col("series").str.starts_with("also") & (pl.col("metaparameter") == "learning_rate"))
    assert dict(also.select("batch_size", "value").rows()) == pytest.approx({4: 0.02, 16: 0.04, 64: 0.08})
    page = client.get(f"/compare?{query('even', 'also')}").text
    row = page.partition('aria-label="Best learning rates"')[2].partition('<td class="n">16</td>')[2].partition("</tr>")
    assert row[0].count("0.04") == 2


def test_effective_rates_are_drawn_where_there_is_a_momentum(compared):
    client, query = compared
    rates = pl.read_csv(io.StringIO(client.get(f"/compare/rates.csv?{query('even', 'momentum')}").text))
    effective = rates.filter(pl.col("series").str.contains("momentum"), metaparameter="effective_learning_rate")
    assert dict(effective.select("batch_size", "value").rows()) == {4: pytest.approx(0.4 / (1 - 0.9))}
    assert "effective_learning_rate" not in client.get(f"/compare/rates.csv?{query('even', 'also')}").text


def test_normalised_curves_start_at_one_at_the_smallest_shared_batch_size(compared):
    client, query = compared
    page = client.get(f"/compare?normalised=true&{query('even', 'also')}").text
    assert "over its own steps at batch size 4" in page
    data = pl.read_csv(io.StringIO(client.get(f"/compare/curves.csv?normalised=true&{query('even', 'also')}").text))
    assert data.filter(pl.col("batch_size") == 4)["value"].to_list() == [1, 1]


def test_curves_without_a_shared_batch_size_are_shown_as_measured_with_one_sentence(compared):
    client, query = compared
    for normalised in ("true", "false"):
        page = client.get(f"/compare?normalised={normalised}&{query('even', 'odd')}").text
        assert page.count("these share none. They are shown as measured.") == 1
        assert "curves.json?normalised=false" in page and "normalised=true" not in page
    assert client.get(f"/compare/curves.json?normalised=false&{query('even', 'odd')}").status_code == 200
    refused = client.get(f"/compare/curves.svg?normalised=true&{query('even', 'odd')}")
    assert refused.status_code == 422 and "share none" in refused.text


def test_what_has_no_curve_is_left_out_and_named(compared):
    client, query = compared
    page = client.get(f"/compare?{query('even', 'also', 'goalless')}").text
    assert "goalless" in page and "is left out" in page and 'data-chart="/compare/curves.json' in page
    assert "goalless" not in client.get(f"/compare/curves.csv?{query('even', 'also', 'goalless')}").text
    page = client.get(f"/compare?{query('even', 'goalless')}").text
    assert "only one has" in page and "data-chart" not in page
    assert client.get(f"/compare/curves.svg?{query('goalless')}").status_code == 422


def test_experiments_are_chosen_and_left_out_on_the_page_itself(compared):
    client, query = compared
    page = client.get("/compare").text
    assert 'id="other"' in page and 'id="with"' in page and "even (toy/net/sgd)" in page
    assert "goalless (" not in page  # what has no curve is not offered
    one = client.get(f"/compare?{query('even')}&k=").text  # a list from which nothing was chosen
    assert "Choose here" in one and "even (toy/net/sgd)" not in one and "also (toy/net/sgd)" in one
    assert "Choose here" in client.get(f"/compare?{query('even', 'even')}").text
    two = client.get(f"/compare?{query('even', 'also')}").text
    assert two.count("leave out") == 2 and f'href="/compare?{query("also")}&amp;normalised=false"' in two


def test_what_is_drawn_follows_the_records(compared, tmp_path):
    client, query = compared
    asked = f"/compare/curves.json?{query('even', 'also')}"
    before = client.get(asked).text
    write_tree(tmp_path / "records" / "also", curve_studies(law((1024,)), own=OWN))
    end = time.monotonic() + 20
    while client.get(asked).text == before:
        assert time.monotonic() < end, "the chart stays as it was"
        time.sleep(0.05)
    assert '"batch_size": 1024' in client.get(asked).text
