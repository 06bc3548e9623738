"""What the user of a kubeconfig may do in a namespace."""

from __future__ import annotations

from openpai_tasks.protocol.fields import mapping
from openpai_tasks.server.engines.kubernetes.api import NOT_FOUND, KubeApi, KubeError

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RIGHTS = (
    ("create", "pods", ""),
    ("delete", "pods", ""),
    ("list", "pods", ""),
    ("watch", "pods", ""),
    ("get", "pods", "log"),
    ("create", "pods", "exec"),
    ("create", "secrets", ""),
)
"""Verbs, resources and subresources that the engine needs."""


async def exists(api: KubeApi, namespace: str) -> bool:
    """Whether there is such a namespace, or nobody may ask for it: its lists are just empty otherwise."""
    try:
        await api.get(f"/api/v1/namespaces/{namespace}")
    except KubeError as err:
        return err.code != NOT_FOUND
    return True


async def missing_rights(api: KubeApi, namespace: str) -> str:
    """Return what the engine needs but the user may not do, such as ``create pods``; empty if all is fine."""
    missing = []
    for verb, resource, part in RIGHTS:
        wanted = {"namespace": namespace, "verb": verb, "resource": resource, "subresource": part}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        try:
            answer = await api.create(_REVIEWS, review)
        except KubeError as err:
            if err.may_pass:
                raise
            return ""  # nobody may ask here; the first task will find out
        if not mapping(answer.get("status")).get("allowed"):
            missing.append(f"{verb} {resource}/{part}" if part else f"{verb} {resource}")
    return ", ".join(missing)
