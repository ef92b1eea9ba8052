import json

from typer.testing import CliRunner

from batchscale.cli.app import make_app


def test_every_workload_of_the_paper_is_listed_with_its_size_and_data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BATCHSCALE_DATA", raising=False)
    answer = CliRunner().invoke(make_app(), ["workloads", "--json"])
    assert answer.exit_code == 0, answer.exception
    listed = json.loads(answer.stdout)
    rows = {row["name"]: row for row in listed["workloads"]}
    assert len(rows) == 38
    assert rows["mnist/fc_1024/sgd"]["num_parameters"] == 814_090
    assert rows["mnist/simple_cnn_base/sgd"]["num_parameters"] == 3_274_634
    assert rows["imagenet/vgg_11/nesterov_momentum"]["num_parameters"] == 132_863_336
    assert rows["mnist_subsets/mnist_6875/simple_cnn_base/nesterov_momentum"]["num_train_examples"] == 6_875
    assert rows["lm1b/lstm/nesterov_momentum"]["num_train_examples"] == 30_301_028
    assert rows["digits/fc_64/nesterov_momentum"]["data_present"]
    assert not rows["mnist/fc_1024/sgd"]["data_present"]
    assert {"sgd", "momentum", "nesterov_momentum", "adam", "lars", "muon"} <= set(listed["parts"]["optimizers"])
