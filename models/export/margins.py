"""How clear a model's choices of experts are.

If two experts score almost alike, the roundings of bfloat16 decide between them, and every runtime rounds in another
order: outputs recorded for such inputs say nothing.
"""

import copy
import math

import torch
from torch.overrides import TorchFunctionMode

DRAWS = 500


class _Gaps(TorchFunctionMode):
    """The least difference, in logits, between the last expert that a token takes and the first that it does not."""

    least = math.inf

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.topk, torch.Tensor.topk):
            scores, k = args[0].float(), args[1] if len(args) > 1 else kwargs["k"]
            if k < scores.shape[-1]:
                best = scores.topk(k + 1).values
                best = best.log() if scores.min() >= 0 else best  # probabilities
                self.least = min(self.least, (best[..., k - 1] - best[..., k]).min().item())
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def clearest(module, draw):
    """Returns the one of many inputs, draw(seed), whose closest choice of experts is the clearest relative to the
    effect of roundings: the difference to float32, in units in the last place of the greatest output.
    """
    exact = copy.deepcopy(module).float()

    def clear(seed):
        case = draw(seed)
        with _Gaps() as gaps:
            rounded = module(**case)
        want = exact(**case)
        unit = 2.0 ** math.floor(math.log2(want.abs().max()))
        return gaps.least / ((rounded.float() - want).abs().max().item() / unit)

    return draw(max(range(DRAWS), key=clear))
