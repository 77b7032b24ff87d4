"""One rank of test_shard.py: sharded.py FOLDER SIZES RANK; writes FOLDER/RANK.pt."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from some_losses import case, run

from claw.kernels import score


def main(folder: Path, sizes: list[int], rank: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=len(sizes)
    )
    group = dist.group.WORLD
    first = sum(sizes[:rank])
    mine = slice(first, first + sizes[rank])
    torch.save(results(group, mine, rank), folder / f"{rank}.pt")
    dist.destroy_process_group()


def results(group: dist.ProcessGroup, mine: slice, rank: int) -> dict:
    from test_shard import TOPK, VOCAB, tied_case

    whole = case(vocab=VOCAB)
    one = whole | {"weight": whole["weight"][mine]}
    ids = torch.cat([one["ids"][:, None], one["topk_ids"]], dim=1)

    def scored(**changes) -> object:
        arguments = {
            "hidden": one["hidden"], "weight": one["weight"], "ids": ids, "topk": TOPK,
            "temperature": one["temperature"], "chunk_tokens": 3,
        }  # fmt: skip
        return score(**arguments | changes, process_group=group)

    def trained(case: dict, mode: str = "forward") -> dict:
        loss, hidden_grad, weight_grad, metrics = run(
            case, mode=mode, process_group=group, chunk_tokens=3
        )
        return {
            "loss": loss, "hidden_grad": hidden_grad, "weight_grad": weight_grad,
            "metrics": metrics,
        }  # fmt: skip

    hidden, weight = tied_case()
    found = {mode: trained(one, mode) for mode in ("forward", "recompute")}
    found["score"] = vars(scored())
    found["tied"] = score(hidden, weight[mine], topk=TOPK, process_group=group).topk_ids
    half = {name: one[name].bfloat16() for name in ("hidden", "weight")}
    found["half"] = trained(one | half)
    outside = torch.full_like(one["ids"], VOCAB)
    spoiled = one["weight"] if rank else torch.full_like(one["weight"], torch.nan)
    found["errors"] = {
        "score": error(lambda: scored(ids=outside[:, None])),
        "loss": error(lambda: trained(one | {"ids": outside})),
        "topk": error(lambda: scored(topk=VOCAB + 1)),
        "different topk": error(lambda: scored(topk=1 + rank % 2)),
        "different tokens": error(lambda: scored(hidden=one["hidden"][: 7 - rank % 2])),
        "nan": error(lambda: scored(weight=spoiled)),
    }
    return found


def error(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(Path(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")], int(sys.argv[3]))
