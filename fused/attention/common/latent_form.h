// The choice between the forms of LatentAttention.
#pragma once

#include <stddef.h>

namespace mojo {

// NaiveIsLess reports whether the naive form takes fewer multiplications: it computes keys and values of so many
// tokens. The absorbed form multiplies the queries with w before they attend to latents, and multiplies the result with
// w.
template <class Sizes>
bool NaiveIsLess(const Sizes& t, size_t tokens) {
  const size_t of_w = t.latent * (t.nope + t.value_width), attended = t.queries * tokens;
  const size_t naive = tokens * of_w + attended * (t.nope + t.rotated + t.value_width);
  return naive < t.queries * of_w + attended * (2 * t.latent + t.rotated);
}

}  // namespace mojo
