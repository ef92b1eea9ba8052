"""The fields of KubeRay's RayJob (ray.io/v1) that our example may use, as a strict schema; pods are checked apart.

Written after the field reference of KubeRay 1.6: anything that is not in it is refused.
"""

from typing import Any

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
POD = {"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object"}}}


def table(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


AUTOSCALER = table(
    [],
    idleTimeoutSeconds=COUNT,
    upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
    image={"type": "string"},
    imagePullPolicy={"enum": ["Always", "Never", "IfNotPresent"]},
    resources={"type": "object"},
    env={"type": "array"},
    envFrom={"type": "array"},
    volumeMounts={"type": "array"},
    securityContext={"type": "object"},
    version={"enum": ["v1", "v2"]},
)
HEAD = table(
    ["template"],
    rayStartParams=TEXTS,
    template=POD,
    serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    enableIngress={"type": "boolean"},
    headService={"type": "object"},
    resources=TEXTS,
    labels=TEXTS,
)
WORKERS = table(
    ["groupName", "minReplicas", "maxReplicas", "template"],
    groupName={"type": "string", "minLength": 1},
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    numOfHosts=COUNT,
    idleTimeoutSeconds=COUNT,
    suspend={"type": "boolean"},
    rayStartParams=TEXTS,
    resources=TEXTS,
    labels=TEXTS,
    template=POD,
    scaleStrategy={"type": "object"},
)
CLUSTER = table(
    ["headGroupSpec"],
    headGroupSpec=HEAD,
    workerGroupSpecs={"type": "array", "items": WORKERS},
    rayVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
    enableInTreeAutoscaling={"type": "boolean"},
    autoscalerOptions=AUTOSCALER,
    authOptions=table(["mode"], mode={"enum": ["disabled", "token"]}, secretName={"type": "string"}),
    headServiceAnnotations=TEXTS,
    suspend={"type": "boolean"},
)
RAYJOB = table(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=table(["name"], name={"type": "string"}, namespace={"type": "string"}, labels=TEXTS, annotations=TEXTS),
    spec=table(
        ["entrypoint", "rayClusterSpec"],
        entrypoint={"type": "string", "minLength": 1},
        activeDeadlineSeconds={**COUNT, "minimum": 1},
        backoffLimit=COUNT,
        rayClusterSpec=CLUSTER,
        submitterPodTemplate=POD,
        metadata=TEXTS,
        runtimeEnvYAML={"type": "string"},
        jobId={"type": "string"},
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        entrypointNumCpus={"type": "number"},
        entrypointNumGpus={"type": "number"},
        entrypointResources={"type": "string"},
        ttlSecondsAfterFinished=COUNT,
        shutdownAfterJobFinishes={"type": "boolean"},
        suspend={"type": "boolean"},
    ),
)
