// Measures the least time that multiplying codes takes: the floor of bench_experts.py, which compiles this file for the
// machine it runs on.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

// Multiply computes count times 8 vectors of products of bytes, from registers, and returns the number of products in a
// vector.
size_t Multiply(size_t count, int* kept) {
#if defined(__AVX512VNNI__)
  __m512i sums[8] = {}, a = _mm512_set1_epi32(*kept), b = a;
  for (size_t i = 0; i < count; ++i) {
    asm volatile("" : "+v"(a));
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  for (const auto& sum : sums) *kept += _mm512_reduce_add_epi32(sum);
  return 64;
#elif defined(__AVX2__)
  __m256i sums[8] = {}, a = _mm256_set1_epi32(*kept), b = a;
  for (size_t i = 0; i < count; ++i) {
    asm volatile("" : "+x"(a));
    for (auto& sum : sums) sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
  }
  for (const auto& sum : sums) *kept += _mm256_extract_epi32(sum, 0);
  return 32;
#else
  (void)count, (void)kept;
  return 0;
#endif
}

}  // namespace

// ProductsPerSecond is the number of products of bytes that so many threads compute in a second.
extern "C" double ProductsPerSecond(size_t threads) {
  constexpr size_t kCount = size_t{1} << 22;
  std::atomic<size_t> here{0}, width{0};
  const auto work = [&] {
    int kept = static_cast<int>(here.fetch_add(1));
    while (here.load() < threads) {
    }
    width = Multiply(kCount, &kept);
    static std::atomic<int> all;  // keeps the compiler from removing the products
    all = kept;
  };
  std::vector<std::thread> others;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (auto& t : others) t.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(kCount * 8 * width * threads) / seconds.count();
}
