"""Jobs to write files of."""

from batchscale.planning.jobs.job import JobLaunch, TrainCommand, needed_options

ALL_OPTIONS = set(needed_options(2, 2))


def make_job(hosts=1, devices_per_host=1, device="NVIDIA T4", **settings):
    command = TrainCommand("experiment.toml", 128, 15000, {"learning_rate": "0.001"}, "val/classification_error < 0.03")
    given = {
        "machine": "gcp n1-standard-8 + 2 T4",
        "limit_s": 7200.0,
        "image": "registry.example/batchscale:1",
        **settings,
    }
    return JobLaunch("batchscale-t4-b128", command, hosts, devices_per_host, device, **given)
