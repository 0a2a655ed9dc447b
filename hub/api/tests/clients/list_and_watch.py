"""Python's own Kubernetes client: makes, lists, pages through and watches objects. Prints what it saw as JSON."""

import json
import sys

from kubernetes import client, config, watch

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
objects = client.CustomObjectsApi()
flux = {"group": "kustomize.toolkit.fluxcd.io", "version": "v1", "namespace": "default", "plural": "kustomizations"}

for name in ("a", "b", "c"):
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"of": "python"}), data={"k": name})
    core.create_namespaced_config_map("default", body)

names, token = [], None
while True:
    page = core.list_namespaced_config_map("default", label_selector="of=python", limit=2, _continue=token)
    names += [item.metadata.name for item in page.items]
    token = page.metadata._continue
    if not token:
        break

listed = objects.list_namespaced_custom_object(**flux)
version = listed["metadata"]["resourceVersion"]
spec = {"interval": "5m", "prune": True, "sourceRef": {"kind": "GitRepository", "name": "web"}}
kustomization = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "web"}, "spec": spec}
objects.create_namespaced_custom_object(body=kustomization, **flux)
objects.patch_namespaced_custom_object(name="web", body={"spec": {"suspend": True}}, **flux)

events = []
stream = watch.Watch()
for event in stream.stream(objects.list_namespaced_custom_object, resource_version=version, timeout_seconds=60, **flux):
    events.append([event["type"], event["object"]["spec"].get("suspend", False)])
    if len(events) == 2:
        stream.stop()

try:
    core.read_namespaced_secret("nobody", "default")
    refused = None
except client.ApiException as error:
    refused = [error.status, json.loads(error.body)["reason"]]

print(json.dumps({"names": names, "events": events, "refused": refused, "version": client.VersionApi().get_code().major}))
