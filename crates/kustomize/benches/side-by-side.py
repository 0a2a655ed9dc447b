#!/usr/bin/env python3
"""Times `roadstead build` and the real `kustomize build` side by side: CPU time (user and system) and peak memory.

    side-by-side.py [--cases FOLDER_OR_TAR] [--runs N] [--limit SECONDS] [--only TEXT] [--roadstead PROGRAM] [--size N]

The trees are the perf- cases and the real- ones with the largest outputs (of ../shared/kustomize-cases, unpacked into
the cache folder), and one of 10,000 objects that is generated. Medians of the time
are printed, and the peak of one run; a program that takes longer than the
limit on a tree is ended there, once, and the table says so. The cache folder is $ROADSTEAD_CACHE, without it
~/.cache/roadstead; the real kustomize is $KUSTOMIZE, or bin/kustomize in the cache, where Go installs it if it is missing.

Each output is compared with the case's: a build that is fast and wrong counts for nothing.
"""

import argparse
import os
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path

VERSION = "v5.8.1"
MODULE = "sigs.k8s.io/kustomize/kustomize/v5"
PROJECT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("ROADSTEAD_CACHE") or Path.home() / ".cache/roadstead")
REAL_CASES = 8


def find_kustomize():
    named = os.environ.get("KUSTOMIZE")
    if named:
        return named
    program = CACHE / "bin/kustomize"
    if not program.exists():
        if not shutil.which("go"):
            sys.exit(f"no kustomize: put {VERSION} at {program}, or install Go, or set KUSTOMIZE")
        program.parent.mkdir(parents=True, exist_ok=True)
        print(f"installing kustomize {VERSION} into {program.parent}", file=sys.stderr)
        env = {**os.environ, "GOBIN": str(program.parent)}
        subprocess.run(["go", "install", f"{MODULE}@{VERSION}"], env=env, check=True)
    return str(program)


def find_cases(given):
    place = Path(given) if given else PROJECT.parent / "shared/kustomize-cases"
    if (place / "cases").is_dir():
        return place / "cases"
    if place.is_dir() and any(place.glob("perf-*")):
        return place
    tar = place if place.is_file() else place / "cases-public.tar.gz"
    if not tar.exists():
        print(f"no cases at {place}: only the generated tree is timed", file=sys.stderr)
        return None
    folder = CACHE / "kustomize-cases"
    if not (folder / "cases").is_dir():
        print(f"unpacking {tar} into {folder}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(tar) as archive:
            archive.extractall(folder, filter="data")
    return folder / "cases" if (folder / "cases").is_dir() else folder


def case_trees(cases):
    """Name, folder, arguments and expected output of the cases that are timed."""

    def tree(case):
        return case.name, case / "input", shlex.split((case / "cmd").read_text()), case / "expected.yaml"

    built = [case for case in cases.iterdir() if (case / "expected.yaml").exists()]
    real = [case for case in built if case.name.startswith("real-")]
    real.sort(key=lambda case: (case / "expected.yaml").stat().st_size, reverse=True)
    perf = sorted(case for case in built if case.name.startswith("perf-"))
    return [tree(case) for case in perf + real[:REAL_CASES]]


def deployment(i):
    return f"""apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{i}
spec:
  selector:
    matchLabels:
      app: app-{i}
  template:
    metadata:
      labels:
        app: app-{i}
    spec:
      serviceAccountName: account-{i}
      containers:
      - name: main
        image: registry.example.com/team/app{i % 50}:1.{i}
        envFrom:
        - configMapRef:
            name: conf-{i}
"""


def others(i):
    return f"""---
apiVersion: v1
kind: Service
metadata:
  name: app-{i}
spec:
  selector:
    app: app-{i}
  ports:
  - port: 80
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: account-{i}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: account-{i}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: view
subjects:
- kind: ServiceAccount
  name: account-{i}
"""


def generated_tree(objects):
    """A base of so many objects, a fifth of each of five kinds, and an overlay that changes most of them."""
    root = CACHE / f"kustomize-generated-{objects}"
    shutil.rmtree(root, ignore_errors=True)
    (root / "base").mkdir(parents=True)
    (root / "overlay").mkdir()
    apps, each = objects // 5, 20
    names = []
    for start in range(0, apps, each):
        names.append(f"objects-{start}.yaml")
        text = "---\n".join(deployment(i) + others(i) for i in range(start, min(start + each, apps)))
        (root / "base" / names[-1]).write_text(text)
    maps = "".join(f"- {{name: conf-{i}, literals: [level=info, index={i}]}}\n" for i in range(apps))
    (root / "base/kustomization.yaml").write_text(
        f"resources: [{', '.join(names)}]\nconfigMapGenerator:\n{maps}"
    )
    images = "".join(f"- {{name: registry.example.com/team/app{i}, newTag: '9'}}\n" for i in range(10))
    (root / "overlay/kustomization.yaml").write_text(f"""resources: [../base]
namePrefix: prod-
namespace: prod
labels: [{{pairs: {{env: prod}}, includeTemplates: true}}]
images:
{images}patches:
- target: {{kind: Deployment, name: 'app-.*0'}}
  patch: |-
    - {{op: add, path: /spec/paused, value: false}}
""")
    return f"generated-{objects}", root, ["overlay"], None


class Child:
    """One run of a program, to its end or to the limit."""

    def __init__(self, command, folder, output, limit):
        with open(output, "wb") as out:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1)),
            )
        message = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        self.cpu = usage.ru_utime + usage.ru_stime
        self.over = process.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        self.error = message.strip() if process.returncode and not self.over else None


def peak_memory(command, folder):
    """Peak of the resident memory in bytes, by GNU time: what the kernel says of a child of this program counts this
    program's own memory, before the child's program takes its place."""
    note = CACHE / "side-by-side/peak"
    subprocess.run(
        ["/usr/bin/time", "-f", "%M", "-o", str(note), *command],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    return int(note.read_text().split()[-1]) * 1024


def measure(command, folder, output, runs, limit):
    """Median of the CPU time and of the peak; and whether the limit was met, or an error."""
    done = []
    start = time.monotonic()
    while len(done) < runs:
        child = Child(command, folder, output, limit)
        if child.over or child.error:
            return None, child.error or f"over {limit} s"
        done.append(child)
        # A build that takes long differs little from run to run.
        if len(done) >= 3 and time.monotonic() - start > 30:
            break
    peak = peak_memory(command, folder)
    return (statistics.median(child.cpu for child in done), peak), None


def main():
    options = argparse.ArgumentParser(description="roadstead build and kustomize build, side by side")
    options.add_argument("--cases", help="folder or archive of the public cases")
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--limit", type=int, default=120, help="seconds of CPU that one build may take")
    options.add_argument("--only", default="", help="only trees whose names have this in them")
    options.add_argument("--size", type=int, default=10_000, help="objects of the generated tree")
    options.add_argument("--roadstead", default=str(PROJECT / "target/release/roadstead"))
    options = options.parse_args()
    ours = Path(options.roadstead).resolve()
    if not ours.exists():
        sys.exit(f"no {ours}: cargo build --release -p roadstead makes it")
    if not os.access("/usr/bin/time", os.X_OK):
        sys.exit("no /usr/bin/time: Debian's package is called time")
    kustomize = find_kustomize()
    cases = find_cases(options.cases)
    trees = [tree for tree in (case_trees(cases) if cases else []) if options.only in tree[0]]
    if options.only in f"generated-{options.size}":
        trees.append(generated_tree(options.size))
    scratch = CACHE / "side-by-side"
    scratch.mkdir(parents=True, exist_ok=True)
    row = "{:<44.44} {:>9} {:>11} {:>11} {:>8} {:>9} {:>9} {:>7}  {}"
    print(row.format("tree", "output", "kustomize", "roadstead", "times", "k. peak", "r. peak", "/output", ""))
    for name, folder, args, expected in trees:
        own, own_error = measure(
            [str(ours), "build", *args], folder, scratch / "roadstead.yaml", options.runs, options.limit
        )
        theirs, their_error = measure(
            [kustomize, "build", *args], folder, scratch / "kustomize.yaml", options.runs, options.limit
        )
        if own is None:
            print(f"{name}: roadstead: {own_error}")
            continue
        size = (scratch / "roadstead.yaml").stat().st_size
        wanted = expected or (scratch / "kustomize.yaml" if theirs else None)
        same = wanted is None or wanted.read_bytes() == (scratch / "roadstead.yaml").read_bytes()
        note = "" if same else "DIFFERENT OUTPUT"
        print(row.format(
            name,
            f"{size / 1e3:.0f} kB",
            f"{theirs[0] * 1e3:.1f} ms" if theirs else their_error[:11],
            f"{own[0] * 1e3:.1f} ms",
            f"{theirs[0] / own[0]:.0f}" if theirs else "-",
            f"{theirs[1] / 1e6:.0f} MB" if theirs else "-",
            f"{own[1] / 1e6:.1f} MB",
            f"{own[1] / max(size, 1):.1f}",
            note,
        ), flush=True)


if __name__ == "__main__":
    main()
