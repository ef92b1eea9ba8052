import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError, PlanningError, UnknownNameError

ROOT = Path(__file__).parents[2]
RUNS = str(ROOT / "examples" / "ddsp_training_runs.csv")
MNIST = str(ROOT / "examples" / "mnist_fc_records")
MACHINES = """
[[machine]]
name = "office"
device = "x86_64"
devices_per_host = 1
price_per_host_hour = 0.2
unit = "EUR"
date = 2026-01-01
"""


def run(*arguments):
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments], catch_exceptions=True)
    if isinstance(result.exception, BatchscaleError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def digits(tmp_path):
    """An experiment with the batch sizes of the curves here."""
    text = (ROOT / "examples" / "digits.toml").read_text()
    path = tmp_path / "digits.toml"
    path.write_text(re.sub(r"^batch_sizes = .*$", 'batch_sizes = "1..1024"', text, flags=re.MULTILINE))
    return path


@pytest.fixture
def machines(tmp_path):
    path = tmp_path / "machines.toml"
    path.write_text(MACHINES)
    return path


@pytest.fixture
def curve(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text("batch_size,steps\n8,1000\n32,300\n128,120\n")
    return path


@pytest.fixture
def times(tmp_path):
    path = tmp_path / "times.csv"
    header = "workload,device,hosts,devices_per_host,batch_size,step_time_s\n"
    path.write_text(header + "".join(f"d/m/o,x86_64,1,1,{b},{0.01 + 0.001 * b}\n" for b in (8, 32, 64, 128)))
    return path


def test_runs_alone_give_the_documents_conclusions_as_json():
    found = json.loads(run("plan", RUNS, "--json").stdout)
    assert found["by_device"]["NVIDIA T4"]["fastest"]["hosts"] == 4
    assert round(found["by_device"]["NVIDIA T4"]["cheapest"]["expected_cost"], 1) == 18.6
    assert found["fastest"]["device"] == "NVIDIA V100" and found["unit"] == "ML units"
    t4 = next(model for model in found["step_time_models"] if model["device"] == "NVIDIA T4")
    assert max(abs(one["left_out_error"]) for one in t4["measurements"]) < 0.033


def test_words_and_table():
    text = run("plan", RUNS, "--device", "T4", "--budget", 30, "--deadline", "5h", "--include-search").stdout
    assert "4:11 h" in text and "9:48 h" in text
    assert "Within 30.0 ML units the fastest is 1 host × 2 NVIDIA T4" in text
    assert "Within 5:00 h the cheapest is 4 hosts × 2 NVIDIA T4 with a batch of 128" in text
    assert "Measuring the curve took" in text


def test_pooled_runs_plan_all_hosts_of_the_machines_that_were_used():
    found = json.loads(run("plan", RUNS, "--pool", "--device", "T4", "--json").stdout)
    rows = found["configurations"]
    assert {row["step_time_from"] for row in rows} == {"measured", "interpolated", "extrapolated"}
    assert (found["fastest"]["hosts"], found["fastest"]["devices_per_host"]) in {(4, 2), (2, 4)}


def test_every_configuration_is_written_as_csv(tmp_path):
    run("plan", RUNS, "--csv", tmp_path / "all.csv")
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and rows[0]["device"] == "NVIDIA V100"


def test_a_curve_with_step_times_and_machines(curve, times, machines):
    result = run("plan", curve, "--step-times", times, "--machines", machines, "--batch-sizes", "16,64", "--json")
    found = json.loads(result.stdout)
    assert {row["batch_size"] for row in found["configurations"]} == {8, 16, 32, 64, 128}
    assert "older than 90 days" in result.stderr


def test_further_batch_sizes_may_be_in_tokens(tmp_path, curve, times, machines):
    words = ["--step-times", times, "--machines", machines, "--batch-sizes", "1,024 tokens, 4k tokens"]
    with pytest.raises(PlanningError, match="need a curve that states the tokens of an example"):
        run("plan", curve, *words)
    points = [{"batch_size": size, "steps": steps} for size, steps in ((8, 1000), (32, 300), (128, 120))]
    in_tokens = tmp_path / "tokens.json"
    in_tokens.write_text(json.dumps({"workload": "d/m/o", "curve": points, "tokens_per_example": 64}))
    rows = json.loads(run("plan", in_tokens, *words, "--json").stdout)["configurations"]
    assert {row["batch_size"] for row in rows} == {8, 16, 32, 64, 128}


def test_our_own_records_say_their_step_times(machines):
    arguments = ["plan", MNIST, "--workload", "fc_128_128_128/sgd", "--machines", machines]
    found = json.loads(run(*arguments, "--include-search", "--search-machine", "office", "--json").stdout)
    assert found["workload"] == "mnist/fc_128_128_128/sgd" and found["unit"] == "EUR"
    assert found["search"]["cost"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "0"], "budget must be a positive number"),
        (["--budget", "-3"], "budget must be a positive number"),
        (["--deadline", "soon"], "--deadline must be a time such as"),
        (["--device", "TPU"], "no configuration has 'TPU'"),
        (["--job", "slurm"], "--job FORMAT and --out FOLDER must be given together"),
        (["--job", "slurn", "--out", "x"], "did you mean 'slurm'"),
        (["--pick", "best"], "--pick must be one of"),
        (["--give-up", "0"], "--give-up must be a positive number"),
        (["--by", "gpuu"], "no column is called 'gpuu'"),
        (["--machine", "NVIDIA T4 x3"], "no machine is called"),
        (["--give-up", "100"], "Found none"),
    ],
)
def test_mistakes_are_one_paragraph(arguments, words):
    with pytest.raises((PlanningError, UnknownNameError)) as caught:
        run("plan", RUNS, *arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_curve_alone_needs_step_times(curve):
    with pytest.raises(PlanningError, match="needs step times"):
        run("plan", curve)


def test_no_price_is_guessed(curve, times):
    with pytest.raises(PlanningError, match="no price of x86_64"):
        run("plan", curve, "--step-times", times)


def test_step_times_of_another_workload(times, machines):
    with pytest.raises(PlanningError, match="same workload"):
        run("plan", MNIST, "--workload", "fc_1024/sgd", "--step-times", times, "--machines", machines)


def asks_for_spot(format_, text):
    """Whether a job file asks for spot hosts, by its format's own word."""
    if format_ == "skypilot":
        return yaml.safe_load(text)["resources"].get("use_spot", False)
    if format_ == "vertex":
        return json.loads(text)["jobSpec"]["scheduling"].get("strategy") == "SPOT"
    *_, manifest = yaml.safe_load_all(text)
    job = manifest["spec"]["replicatedJobs"][0]["template"] if format_ == "jobset" else manifest
    pod = job["spec"]["template"]["spec"]
    if "affinity" not in pod:
        return False
    needed = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    labels = {one["key"] for term in needed for one in term["matchExpressions"]}
    return "cloud.google.com/gke-spot" in labels == {one["key"] for one in pod["tolerations"]}


@pytest.mark.parametrize("spot", [False, True])
def test_a_spot_machine_is_asked_for_as_one(curve, times, tmp_path, spot, digits):
    machines = tmp_path / "machines.toml"
    machines.write_text(MACHINES.replace('"office"', f'"n1-standard-8"\nspot = {str(spot).lower()}'))
    arguments = ["plan", curve, "--step-times", times, "--machines", machines]
    assert ("n1-standard-8, spot" in run(*arguments).stdout) == spot
    found = json.loads(run(*arguments, "--json").stdout)
    assert {row["spot"] for row in [found["fastest"], *found["configurations"]]} == {spot}
    arguments += ["--experiment", digits, "--set", "learning_rate=0.1"]
    files = {"skypilot": "task.yaml", "vertex": "custom_job.json", "kubernetes": "job.yaml", "jobset": "jobset.yaml"}
    for format_, name in files.items():
        run(*arguments, "--job", format_, "--out", tmp_path / format_)
        assert asks_for_spot(format_, (tmp_path / format_ / name).read_text()) == spot


def test_a_job_of_one_device_is_written(curve, times, machines, tmp_path, digits):
    out = tmp_path / "job"
    arguments = ["plan", curve, "--step-times", times, "--machines", machines, "--experiment", digits]
    with pytest.raises(PlanningError, match="Pass --set learning_rate"):
        run(*arguments, "--job", "slurm", "--out", out)
    assert not out.exists()
    arguments += ["--set", "learning_rate=0.1"]
    for format_ in ("slurm", "kubernetes", "commands"):
        run(*arguments, "--job", format_, "--out", out)
    assert {path.name for path in out.iterdir()} == {
        "job.sbatch", "job.yaml", "commands.txt", "train.sh", "Dockerfile", "experiment.toml"
    }  # fmt: skip


def test_a_written_job_trains_and_run_again_is_done(tmp_path, machines):
    curve, times = tmp_path / "curve.csv", tmp_path / "times.csv"
    curve.write_text("batch_size,steps,give_up\n16,100,150\n")
    times.write_text("device,hosts,devices_per_host,batch_size,step_time_s\nx86_64,1,1,16,0.001\n")
    arguments = ["plan", curve, "--step-times", times, "--machines", machines, "--set", "learning_rate=0.01"]
    job = tmp_path / "job"
    run(*arguments, "--experiment", ROOT / "examples" / "noisy_quadratic.toml", "--job", "commands", "--out", job)
    script = job / "train.sh"
    script.write_text(script.read_text().replace("set -- batchscale", f"set -- {sys.executable} -m batchscale"))
    for _ in range(2):
        answer = subprocess.run(["sh", str(script)], capture_output=True, text=True, timeout=100)
        assert answer.returncode == 0, answer.stderr
    trials = list(job.glob("records/**/metadata.json"))
    assert len(trials) == 1  # the second time there was nothing left to do


OWN = """
goal = "val/error < 0.06"
batch_sizes = [4, 32]
[workload]
dataset = "mine"
model = "net"
optimizer = "adamw"
[budget]
steps = 100
[search.space.learning_rate]
min_value = 0.1
max_value = 1.0
[trainer]
command = ["python", "train.py"]
env = { API_KEY = "hidden" }
"""


@pytest.fixture
def own(tmp_path):
    """A curve of a script of the user's own, as analyze --json prints it, and its experiment."""
    rows = [{"batch_size": size, "steps": 50, "metaparameters": {"learning_rate": 0.3}} for size in (4, 32)]
    curve = {"workload": "mine/net/adamw", "goal": "val/error < 0.06", "curve": rows}
    (tmp_path / "curve.json").write_text(json.dumps(curve))
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "own.toml").write_text(OWN)
    times = "device,hosts,devices_per_host,batch_size,step_time_s\nx86_64,1,1,4,0.1\nx86_64,1,1,32,0.1\n"
    (tmp_path / "own_times.csv").write_text(times)
    return tmp_path


def own_job(own, machines, *more):
    words = ["plan", own / "curve.json", "--step-times", own / "own_times.csv", "--machines", machines]
    return run(*words, "--experiment", own / "own.toml", "--job", "kubernetes", "--out", own / "job", *more)


def test_a_job_of_an_own_script_runs_it_and_prints_what_to_fill_in(own, machines):
    result = own_job(own, machines)
    assert (own / "job" / "script" / "train.py").read_text() == "print(1)\n"
    assert "batchscale run script/experiment.toml" in (own / "job" / "train.sh").read_text()
    for word in ("Fill in before you start this job", "image:", "data:", "records:", "API_KEY"):
        assert word in result.stdout
    assert not [path for path in (own / "job").rglob("*") if path.is_file() and "hidden" in path.read_text()]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('dataset = "mine"', 'dataset = "other"', "The curve is of mine/net/adamw. Found other/net/adamw"),
        ("< 0.06", "< 0.05", "The curve is of the goal val/error < 0.06. Found val/error < 0.05"),
        ("[4, 32]", "[4, 64]", "The curve has batch size 32. Found batch sizes 4 and 64"),
        ("space.learning_rate", "space.lr", "must be those of the experiment: lr"),
        ("[trainer]", "[search.space.decay]\nmin_value = 0\nmax_value = 1\n[trainer]", "Found no decay in this curve"),
    ],
)
def test_an_experiment_that_is_not_that_of_the_curve_is_refused(own, machines, old, new, words):
    (own / "own.toml").write_text(OWN.replace(old, new))
    with pytest.raises(PlanningError, match=words):
        own_job(own, machines)
    assert not (own / "job").exists()


def test_records_of_an_own_script_need_its_experiment(tmp_path):
    records = tmp_path / "records"
    file = tmp_path / "own.toml"
    script = "from batchscale import trial\nrun = trial.start()\nfor step, _ in run.steps(lambda step: step):\n"
    script += "    if run.due(step):\n        run.report(step, {'val/error': 1 / step})\n"
    (tmp_path / "train.py").write_text(script)
    file.write_text(OWN.replace('"python"', json.dumps(sys.executable)).replace("[4, 32]", "[4, 32]\ntrials = 1"))
    run("run", file, "--out", records, "--runner", "inline", "-q")
    machines = tmp_path / "machines.toml"
    machines.write_text(MACHINES)
    times = tmp_path / "times.csv"
    times.write_text("device,hosts,devices_per_host,batch_size,step_time_s\nx86_64,1,1,4,0.1\nx86_64,1,1,32,0.1\n")
    words = [
        "plan",
        records,
        "--step-times",
        times,
        "--machines",
        machines,
        "--job",
        "slurm",
        "--out",
        tmp_path / "job",
    ]
    with pytest.raises(PlanningError, match="pass --experiment FILE"):
        run(*words)
    run(*words, "--experiment", file)
    assert (tmp_path / "job" / "script" / "train.py").exists()


def test_a_job_over_hosts_needs_options_that_exist(tmp_path, digits):
    from batchscale.cli.plan_job import train_options

    arguments = ["plan", RUNS, "--device", "T4", "--experiment", digits]
    if {"--cluster", "--devices"} <= train_options():
        run(*arguments, "--job", "slurm", "--out", tmp_path / "job")
        assert (tmp_path / "job" / "job.sbatch").exists()
    else:
        with pytest.raises(PlanningError, match="which this version does not have"):
            run(*arguments, "--job", "slurm", "--out", tmp_path / "job")
        assert not (tmp_path / "job").exists()


def test_machines_lists_the_shipped_prices_and_says_which_are_old():
    result = run("machines")
    assert "aws g4dn.xlarge" in result.stdout and "USD" in result.stdout


def test_machines_are_imported_from_a_catalogue(tmp_path):
    catalogue = tmp_path / "vms.csv"
    catalogue.write_text("InstanceType,AcceleratorName,AcceleratorCount,Price,Region\nbox,T4,2,1.5,r\n")
    run("machines", "--import", catalogue, "--max-hosts", 4, "--out", tmp_path / "m.toml")
    (found,) = json.loads(run("machines", tmp_path / "m.toml", "--json").stdout)["machines"]
    assert (found["devices_per_host"], found["max_hosts"], found["price_per_host_hour"]) == (2, 4, 1.5)


def test_planning_loads_neither_jax_nor_altair():
    code = (
        "import sys\nfrom batchscale.cli.app import main\n"
        f"sys.argv = ['batchscale', 'plan', {RUNS!r}]\n"
        "main_exit = None\ntry:\n    main()\nexcept SystemExit as e:\n    main_exit = e.code\n"
        "print(sorted({'jax', 'altair', 'flax'} & set(sys.modules)), main_exit)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert answer.stdout.splitlines()[-1] == "[] 0"


MODEL = """
layers = 12
width = 768
heads = 12
sequence_length = 1024
vocabulary = 50257
tokens = 1e9
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs a CURVE"),
        (["--model", "missing.toml"], "cannot be read"),
        (["--model", "m.toml", "--work", "w.csv"], "exclude each other"),
        (["--model", "m.toml", "--overlap", "1.5"], "--overlap must be a share from 0 to 1"),
        (["--model", "m.toml", "--overlap", "nan"], "--overlap must be a share from 0 to 1"),
        (["--model", "m.toml", "--devices", "zero.csv"], "line 2: memory_gb_per_s must be a positive number"),
        (["--model", "m.toml", "--devices", "units.csv"], "looks like another unit"),
        (["--model", "m.toml", "--device", "H1000"], "no machine has 'H1000'"),
        (["--model", "m.toml", "--machines", "odd.toml"], "not in the table of devices"),
        (["--model", "huge.toml", "--device", "T4"], "does not fit into the memory"),
        (["c.csv", "--devices", "zero.csv"], "--devices and --overlap are for estimates"),
    ],
)
def test_bad_inputs_of_estimates_end_with_one_paragraph(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MODEL)
    (tmp_path / "huge.toml").write_text(
        MODEL.replace("layers = 12", "layers = 900").replace("width = 768", "width = 98304")
    )
    (tmp_path / "c.csv").write_text("batch_size,steps\n8,100\n16,60\n")
    header = "device,bfloat16_tflops,memory_gb,memory_gb_per_s\n"
    (tmp_path / "zero.csv").write_text(f"{header}X,100,24,0\n")
    (tmp_path / "units.csv").write_text(f"{header}X,9.89e14,24,900\n")
    (tmp_path / "odd.toml").write_text(
        '[[machine]]\nname = "o"\ndevice = "Odd 9"\ndevices_per_host = 1\nprice_per_host_hour = 1.0\nunit = "USD"\n'
    )
    result = CliRunner().invoke(make_app(), ["plan", *words])
    assert isinstance(result.exception, BatchscaleError), result.output
    assert message in str(result.exception)


def test_a_model_on_paper_is_planned_and_sharpened_by_one_step(tmp_path):
    (tmp_path / "m.toml").write_text(MODEL)
    words = ["plan", "--model", str(tmp_path / "m.toml"), "--max-hosts", "2", "--json"]
    before = json.loads(CliRunner().invoke(make_app(), words).stdout)
    (tmp_path / "t.csv").write_text(
        "device,hosts,devices_per_host,batch_size,step_time_s\nNVIDIA A100-SXM4-40GB,1,8,512,1.2\n"
    )
    after = json.loads(CliRunner().invoke(make_app(), [*words, "--step-times", str(tmp_path / "t.csv")]).stdout)
    assert {row["step_time_from"] for row in before["configurations"]} == {"estimated"}
    assert {row["steps_from"] for row in before["configurations"]} == {"predicted"}
    assert "measured" in {row["step_time_from"] for row in after["configurations"]}
    widths = [
        {e["machine"]: e["efficiency_high"] / e["efficiency_low"] for e in plan["estimates"]}
        for plan in (before, after)
    ]
    assert all(widths[1][name] < widths[0][name] for name in widths[0])
    assert before["first_measurement"]["cost"] > 0


def test_a_list_of_prices_is_imported_checked_and_planned_with(tmp_path):
    (tmp_path / "m.toml").write_text(MODEL)
    (tmp_path / "p.csv").write_text(
        "name,GPU,devices_per_host,price_per_host_hour,unit,date\nbox,H100 SXM,8,20,EUR,2026-11-01\n"
    )
    out = tmp_path / "machines.toml"
    words = ["machines", "--import", str(tmp_path / "p.csv"), "--column", "device=GPU", "--max-hosts", "2"]
    result = CliRunner().invoke(make_app(), [*words, "--out", str(out)])
    assert result.exit_code == 0, result.output
    planned = ["plan", "--model", str(tmp_path / "m.toml"), "--machines", str(out), "--json"]
    plan = json.loads(CliRunner().invoke(make_app(), planned).stdout)
    assert plan["unit"] == "EUR" and {row["hosts"] for row in plan["configurations"]} == {1, 2}
    wrong = CliRunner().invoke(make_app(), [*words[:3], "--column", "device"])
    assert "KEY=COLUMN" in str(wrong.exception)


def test_devices_are_written_as_they_are_read(tmp_path):
    out = tmp_path / "devices.csv"
    listed = json.loads(CliRunner().invoke(make_app(), ["devices", "--json"]).stdout)["devices"]
    assert CliRunner().invoke(make_app(), ["devices", "--out", str(out)]).exit_code == 0
    again = json.loads(CliRunner().invoke(make_app(), ["devices", str(out), "--json"]).stdout)["devices"]
    assert [row["device"] for row in again] == [row["device"] for row in listed]
    for row, copy in zip(listed, again, strict=True):
        assert copy["peak_flops"] == pytest.approx(row["peak_flops"])
        assert copy["network_bytes_per_s"] == pytest.approx(row["network_bytes_per_s"])
