"""Run tasks as pods of a Kubernetes cluster, with the rights of one user in a namespace.

Nothing of ours is installed there: no operator, no custom resource, no daemon. Requests go through
``kubectl proxy``, so every login that the user's kubeconfig has works, and commands in pods through
``kubectl exec``.
"""
