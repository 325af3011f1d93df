// Which form of LatentAttention takes less.
#ifndef MOJO_KERNELS_COMMON_LATENT_FORM_H_
#define MOJO_KERNELS_COMMON_LATENT_FORM_H_

#include <stddef.h>

namespace mojo {

// NaiveIsLess tells whether it takes fewer multiplications to make keys and values of so many tokens than to multiply
// the queries with w, before they attend to latents, and what they attend to.
template <class Sizes>
bool NaiveIsLess(const Sizes& t, size_t tokens) {
  const size_t of_w = t.latent * (t.nope + t.value_width), attended = t.queries * tokens;
  const size_t naive = tokens * of_w + attended * (t.nope + t.rotated + t.value_width);
  return naive < t.queries * of_w + attended * (2 * t.latent + t.rotated);
}

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_LATENT_FORM_H_
