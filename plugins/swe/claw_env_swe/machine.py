"""The machine of an instance: its repository with the defect in it, kept as an image.

Owns: preparing an instance once, and opening sandboxes of what was prepared.
Does not own: sandboxes and images themselves (claw.sdk.sandbox), grading.

What is prepared holds one commit: no later state of the repository can be found in it. The image is
`claw/swe:<digest of what made it>`, and is used again by every attempt and every grading.
"""

import hashlib
import json
import tempfile
import threading
from collections import defaultdict
from pathlib import Path

from claw.sdk import ClawError
from claw.sdk.sandbox import ROOT_CAPABILITIES, Sandbox, SandboxError, Spec, images, open_sandbox

from . import recipe
from .instance import Instance
from .settings import SweConfig

ROOT = "0:0"
AGENT = "1000:1000"
IMAGES = "claw/swe"
LAYOUT = 1
"""raised when what is prepared changes, so that older images are not used again"""
PYTEST_AT = "/opt/claw-pytest"
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SETUP_S = 600.0
NEW = """
set -e
cd "$1"; rm -rf .git
git init -q -b main
printf '%s\\n' __pycache__/ '*.pyc' .pytest_cache/ '*.egg-info/' >> .git/info/exclude
git add -A -f
git -c user.name=claw -c user.email=claw@localhost commit -q -m base
chown -R "$2" .
"""
"""a repository of one commit, made of the files that are there"""
SHORTEN = """
set -e
cd "$1"
git config --global --add safe.directory '*'
git add -A && git -c user.name=claw -c user.email=claw@localhost commit -q --allow-empty -m base
git clone -q --bare --depth 1 --single-branch --no-tags "file://$PWD" /tmp/short.git
cp .git/index /tmp/short.git/index
rm -rf .git && mv /tmp/short.git .git
git config core.bare false
git config --remove-section remote.origin 2>/dev/null || true
mkdir -p .git/info
printf '%s\\n' __pycache__/ '*.pyc' .pytest_cache/ >> .git/info/exclude
"""
"""the last commit of a ready image alone, without what came before, after, or beside it"""

_preparing: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def opened(instance: Instance, config: SweConfig) -> Sandbox:
    """Open a sandbox with the instance's repository in it, as its agent or its tests need it."""
    return open_sandbox(_spec(prepared(instance, config), instance, config))


def user_of(instance: Instance) -> str:
    """Who acts and tests: the agent on the base image; root in images that were made for root."""
    return ROOT if instance.image else AGENT


def variables(instance: Instance) -> dict[str, str]:
    """Return the variables of commands and tests."""
    made = dict(instance.suite.env)
    if instance.suite.path:
        made["PATH"] = f"{instance.suite.path}:{USUAL_PATH}"
    if instance.source is not None:
        paths = [PYTEST_AT, *filter(None, [made.get("PYTHONPATH", "")])]
        made["PYTHONPATH"] = ":".join(paths)
    return {"PYTHONDONTWRITEBYTECODE": "1", "GIT_PAGER": "cat", "PAGER": "cat"} | made


def prepared(instance: Instance, config: SweConfig) -> str:
    """Return the image of an instance, made the first time."""
    base = _base(instance, config)
    tag = f"{IMAGES}:{_digest(instance, base)}"
    with _preparing[tag]:
        if not images.exists(tag):
            _prepare(instance, config, base, tag)
    return tag


def _base(instance: Instance, config: SweConfig) -> str:
    if instance.build_folder is not None:
        return images.build(instance.build_folder)
    return instance.image or config.image


def _digest(instance: Instance, base: str) -> str:
    source = instance.source
    files = [source.sdist, source.sha256, recipe.PYTEST] if source else []
    back = [instance.gold, instance.test_patch] if instance.is_gold_reversed else []
    parts = [LAYOUT, images.about(base).id, files, instance.base_commit, instance.workdir,
             instance.defect, back]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _spec(image: str, instance: Instance, config: SweConfig) -> Spec:
    user = user_of(instance)
    return Spec(
        image=image, memory_mb=config.memory_mb, cpus=config.cpus, user=user,
        workdir=instance.workdir, tmpfs_mb=min(256, config.memory_mb // 4), pids=512,
        capabilities=ROOT_CAPABILITIES, runtime=config.runtime,
        lifetime_s=7200.0 + config.test_timeout_s,
    )


def _prepare(instance: Instance, config: SweConfig, base: str, tag: str) -> None:
    with open_sandbox(_spec(base, instance, config)) as box:
        if instance.source is not None:
            _fill(box, instance)
        _apply(box, instance, instance.defect)
        if instance.is_gold_reversed:
            _apply(box, instance, instance.test_patch, back=True)
            _apply(box, instance, instance.gold, back=True)
        script = NEW if instance.source is not None else SHORTEN
        _sh(box, script, instance, "its repository cannot be made")
        box.snapshot(tag)


def _fill(box: Sandbox, instance: Instance) -> None:
    with tempfile.TemporaryDirectory(prefix="claw-swe-") as scratch:
        tree, wheels = Path(scratch) / "tree", Path(scratch) / "pytest"
        recipe.unpack(instance, tree, wheels)
        box.put_tree(tree, instance.workdir, user=ROOT)
        box.put_tree(wheels, PYTEST_AT, user=ROOT)


def _apply(box: Sandbox, instance: Instance, patch: str, *, back: bool = False) -> None:
    if not patch:
        return
    words = ["git", "apply", "--whitespace=nowarn", *(["-R"] if back else []), "-"]
    ran = box.run(words, stdin=patch.encode(), user=ROOT, cwd=instance.workdir)
    if ran.exit_code != 0:
        raise ClawError(f"a patch of instance {instance.id!r} does not apply",
                        found=ran.text.strip()[:500], do="check the row against its repository")


def _sh(box: Sandbox, script: str, instance: Instance, what: str) -> None:
    ran = box.run(["bash", "-c", script, "bash", instance.workdir, user_of(instance)], user=ROOT,
                  timeout_s=SETUP_S, cwd="/")
    if ran.exit_code != 0:
        raise SandboxError(f"instance {instance.id!r}: {what}", found=ran.text.strip()[-500:])
