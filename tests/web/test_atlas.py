"""The atlas page: public curves to filter, sort and draw, an experiment on top, and nothing but text from requests."""

import io

import polars as pl
import pytest
from build_records import METRIC, curve_studies, write_tree

OWN = {"goal": f"{METRIC} < 0.1", "format_version": 1}


@pytest.fixture
def client(make_site, monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCALE_ATLAS", str(tmp_path / "atlas"))  # without the curves that other tests added
    site = make_site()
    law = {size: round(400 * (1 + 16 / size)) for size in (1, 4, 16, 64, 256, 1024)}
    write_tree(site.folder / "mine", curve_studies(law, own=OWN))
    visitor = site.visitor()
    while "being read" in visitor.get("/").text:
        pass
    visitor.mine = site.key("mine")
    return visitor


def test_the_page_lists_filters_and_sorts(client):
    page = client.get("/atlas").text
    assert "167 public curves" in page and "Llama 3.1 405B on C4" in page and "CC-BY-4.0" in page
    assert 'href="/atlas" aria-current="page"' in page
    few = client.get("/atlas?q=imagenet&kind=convolutional&source=mlperf&order=label").text
    assert "ResNet-50 on ImageNet" in few and "Llama" not in few.split("h-sources")[0]
    largest = client.get("/atlas?order=b_crit&down=true").text
    assert largest.index("DLRM-DCNv2") < largest.index("ResNet-50 on ImageNet")
    assert "No curve matches" in client.get("/atlas?q=nothing-like-it").text


def test_an_experiment_is_put_on_top_with_the_curves_most_like_it(client):
    page = client.get(f"/atlas?k={client.mine}").text
    assert "Most like yours" in page and "Batch sizes that would show yours" in page
    frame = pl.read_csv(io.StringIO(client.get(f"/atlas/curves.csv?k={client.mine}").text))
    assert set(frame.filter(pl.col("series") == "yours")["batch_size"]) == {1, 4, 16, 64, 256, 1024}
    assert client.get("/atlas?k=nothing").status_code == 404


@pytest.mark.parametrize("chart", ["curves", "sizes"])
def test_charts_come_in_every_form(client, chart):
    assert "zoom_0" in client.get(f"/atlas/{chart}.json?theme=dark&width=360&source=step_law").text
    drawing = client.get(f"/atlas/{chart}.svg?source=step_law")
    assert drawing.text.startswith("<svg") and "sandbox" in drawing.headers["content-security-policy"]
    assert client.get(f"/atlas/{chart}.png?source=step_law").content.startswith(b"\x89PNG")
    assert client.get(f"/atlas/{chart}.svg?q=nothing-like-it").status_code == 200


def test_requests_cannot_bring_markup_or_strange_values(client):
    page = client.get("/atlas", params={"q": "<script>alert(1)</script>", "kind": "'><b>", "order": "__class__"})
    assert page.status_code == 200 and "<script>alert" not in page.text and "'><b>" not in page.text
    assert client.get("/atlas?q=" + "x" * 101).status_code == 422
    assert client.get("/atlas/other.svg").status_code in (404, 422)
