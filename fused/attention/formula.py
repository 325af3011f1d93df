"""QPagedAttention in numpy."""
import numpy as np

from formulas import F8, I8, Formula, paged_attention, rounded


def coded(rows, slots, codes, scale, dtype):
    """The pool of codes and its scales with the new rows, block by block."""
    codes, scale, block = np.array(codes, np.float64), np.array(scale, np.float64), codes.shape[1]
    most = 127 if dtype == I8 else 448
    code = lambda x: np.clip(np.round(x), -128, 127) if dtype == I8 else rounded(np.clip(x, -448, 448), F8)
    for b in {int(s) // block for s in slots if s >= 0}:
        new = [t for t, s in enumerate(slots) if s >= 0 and s // block == b]
        over = any(slots[t] == b * block for t in new)
        for h in range(codes.shape[2]):
            old = 2.0**-126 if over else scale[b, h]
            powers = 2.0**np.arange(-126, 123)
            least = powers[np.argmax(np.abs(rows[new, h]).max() <= most * powers)]
            scale[b, h] = max(least, old)
            codes[b, :, h] = 0 if over else code(codes[b, :, h] * (old / scale[b, h]))
            for t in new:
                codes[b, int(slots[t]) % block, h] = code(rows[t, h] / scale[b, h])
    return codes, scale


def quantized_paged_attention(types, q, k, v, key_cache, value_cache, cumulative_sequence_length, past_seqlens,
                              block_table, key_scale, value_scale, slot_mapping, sink, **attributes):
    """QPagedAttention: PagedAttention on the decoded pools, after the new rows are written."""
    cum, block = cumulative_sequence_length.astype(int), key_cache.shape[1]
    slots = slot_mapping
    if slots is None:
        owner = np.searchsorted(cum[1:], np.arange(len(q)), "right")
        at = past_seqlens.astype(int)[owner] + np.arange(len(q)) - cum[owner]
        slots = block_table.astype(int)[owner, at // block] * block + at % block
    keys, key_scale = coded(k, slots, key_cache, key_scale, types[1])
    values, value_scale = coded(v, slots, value_cache, value_scale, types[1])
    pools = [keys * key_scale[:, None, :, None], values * value_scale[:, None, :, None]]
    y, _, _ = paged_attention(q, k, v, *pools, cumulative_sequence_length, past_seqlens, block_table,
                              np.full(len(q), -1), sink, types[0], **attributes)
    return [y, keys, values, key_scale, value_scale]


class QPagedAttention(Formula):
    """Codes and scales are exact."""

    def __init__(self):
        super().__init__(quantized_paged_attention, units=8)

    def bounds(self, wants, types, *inputs, **attributes):
        return super().bounds(wants[:1], types[:1], *inputs, **attributes) + [0] * 4


FORMULAS = {"QPagedAttention": QPagedAttention()}
