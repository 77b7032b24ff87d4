"""The real SGLang, which spoils one swap on purpose when the file $CLAW_SPOILT says how.

    skip NAME      one tensor is not loaded
    swap NAME NAME two tensors are exchanged
    keep_cache     the prefix cache is not flushed with the old weights
    bind_nothing   an adapter comes without its numbers
"""

import os
import shutil
import tempfile
from pathlib import Path

from safetensors.numpy import load_file, save_file

from claw.engine.worker import host_process
from claw.engine.worker.sglang import SglangEngine


def fault() -> list[str]:
    """What goes wrong now; the next time nothing does."""
    file = Path(os.environ["CLAW_SPOILT"])
    if not file.exists():
        return []
    words = file.read_text().split()
    file.unlink()
    return words


class FaultySglang(SglangEngine):
    """See `engine.Engine`."""

    async def load_weights(self, folder: Path) -> None:
        what, *names = fault() or [""]
        if what == "keep_cache":
            done = await self._manager.update_weights_from_disk(
                self._io.UpdateWeightFromDiskReqInput(model_path=str(folder), flush_cache=False))
            assert done[0], done
            return
        if not names:
            await super().load_weights(folder)
            return
        tensors = {n: t for f in folder.glob("*.safetensors") for n, t in load_file(f).items()}
        if what == "skip":
            del tensors[names[0]]  # the engine keeps what it has
        else:
            a, b = names
            tensors |= {a: tensors[b], b: tensors[a]}
        spoilt = Path(tempfile.mkdtemp())
        save_file(tensors, spoilt / "model.safetensors")
        await super().load_weights(spoilt)
        shutil.rmtree(spoilt)

    async def load_adapter(self, name: str, folder: Path) -> None:
        if fault() != ["bind_nothing"]:
            await super().load_adapter(name, folder)
            return
        spoilt = Path(tempfile.mkdtemp())
        shutil.copy(folder / "adapter_config.json", spoilt)
        tensors = load_file(folder / "adapter_model.safetensors")
        save_file({n: t * 0 for n, t in tensors.items()}, spoilt / "adapter_model.safetensors")
        await super().load_adapter(name, spoilt)
        shutil.rmtree(spoilt)


if __name__ == "__main__":
    host_process.main(FaultySglang)
