"""Manifests for Kubernetes: an indexed Job with a headless service, or a JobSet.

A pod makes its TF_CONFIG from its index and the names of all pods. Records are on a volume that all pods mount: a claim
named ``batchscale-records``, which the owner of the cluster creates.
"""

import json
import textwrap

from batchscale.planning.devices import device_key, is_processor
from batchscale.planning.jobs.job import PORT, JobLaunch
from batchscale.planning.jobs.scripts import LAUNCHER, tf_config_in_shell

CLAIM = "batchscale-records"
ENVIRONMENT = "batchscale-env"

_SECRET_VARIABLE = f"""\
          - name: {{name}}
            valueFrom:
              secretKeyRef:
                name: {ENVIRONMENT}
                key: {{name}}
"""

_SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    job-name: {name}
  ports:
    - name: coordinator
      port: {port}
---
"""

_JOB_SPEC = """\
completions: {hosts}
parallelism: {hosts}
completionMode: Indexed
backoffLimit: {backoff}
{limit}template:
  spec:
    subdomain: {subdomain}
    restartPolicy: OnFailure
{spot}    containers:
      - name: train
        image: {image}
        command: ["sh", "-c"]
        args:
          - |
{script}
        env:
          - name: RECORDS
            value: {records}
{variables}{resources}        volumeMounts:
          - name: records
            mountPath: /records
    volumes:
      - name: records
        persistentVolumeClaim:
          claimName: {claim}
"""

# Labels by which providers mark spot nodes; any of them will do. If such nodes are tainted, the taint has the label's
# name.
_SPOT_LABELS = (
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)

_JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
{spec}"""

_JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
spec:
  network:
    enableDNSHostnames: true
    subdomain: {name}
  failurePolicy:
    maxRestarts: {restarts}
  replicatedJobs:
    - name: hosts
      replicas: 1
      template:
        spec:
{spec}"""

RESTARTS = 20


def kubernetes_manifest(job: JobLaunch) -> str:
    """Return the text of ``job.yaml``: the service that gives pods their names, and the Job."""
    addresses = [f"{job.name}-{i}.{job.name}" for i in range(job.hosts)]
    service = _SERVICE.format(name=job.name, port=PORT) if job.hosts > 1 else ""
    return service + _JOB.format(name=job.name, spec=textwrap.indent(_job_spec(job, addresses, RESTARTS), "  "))


def jobset_manifest(job: JobLaunch) -> str:
    """Return the text of ``jobset.yaml``: all pods restart together when one fails."""
    addresses = [f"{job.name}-hosts-0-{i}.{job.name}" for i in range(job.hosts)]
    spec = textwrap.indent(_job_spec(job, addresses, 0), " " * 10)
    return _JOBSET.format(name=job.name, restarts=RESTARTS, spec=spec)


def _job_spec(job: JobLaunch, addresses: list[str], backoff: int) -> str:
    cluster = [tf_config_in_shell(addresses, "$JOB_COMPLETION_INDEX")] if job.hosts > 1 else []
    script = "\n".join([*cluster, f"exec sh /batchscale/{LAUNCHER}"])
    limit = "" if job.limit_s is None else f"activeDeadlineSeconds: {int(job.limit_s)}\n"
    return _JOB_SPEC.format(
        hosts=job.hosts,
        backoff=backoff,
        limit=limit,
        subdomain=job.name,
        spot=textwrap.indent(_spot(), " " * 4) if job.spot else "",
        image=json.dumps(job.image),
        script=textwrap.indent(script, " " * 12),
        records=json.dumps(job.records if job.is_remote else f"/records/{job.records.strip('/')}"),
        variables="".join(_SECRET_VARIABLE.format(name=json.dumps(name)) for name in job.command.variables),
        resources=_resources(job),
        claim=CLAIM,
    )


def _spot() -> str:
    """Require spot nodes, by any of the labels, and tolerate their taints."""
    terms = "".join(
        f"        - matchExpressions:\n            - {{key: {key}, operator: In, values: [{json.dumps(value)}]}}\n"
        for key, value in _SPOT_LABELS
    )
    tolerated = "".join(f"  - {{key: {key}, operator: Exists, effect: NoSchedule}}\n" for key, _ in _SPOT_LABELS)
    return (
        "affinity:\n  nodeAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      nodeSelectorTerms:\n"
        f"{terms}tolerations:\n{tolerated}"
    )


def _resources(job: JobLaunch) -> str:
    name = kubernetes_resource(job.device)
    if name is None:
        return ""
    return f"        resources:\n          limits:\n            {name}: {json.dumps(str(job.devices_per_host))}\n"


def kubernetes_resource(device: str) -> str | None:
    """Return the extended resource that a pod requests; None for the host's processor."""
    if is_processor(device):
        return None
    if device_key(device).startswith("tpu"):
        return "google.com/tpu"
    return "amd.com/gpu" if "amd" in device.casefold() or device_key(device).startswith("mi") else "nvidia.com/gpu"
