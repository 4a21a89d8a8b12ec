// Random numbers without a state: Philox4x32-10 turns a counter and a key into 128 random bits. The
// same counter and key give the same bits, at any time, on any thread, in any order.
//
//   const uint64_t bits = RandomBits(request_seed, position);
//
// Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011, section 4.3.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tinyvllm {

struct PhiloxWords {
  uint32_t word[4];
};

// tag::philox[]
// Ten rounds. Each multiplies two of the four words by constants into 64 bits; the lower halves
// become words as they are, the upper halves after an exclusive or with the other words and the
// key.
inline __host__ __device__ PhiloxWords Philox4x32(PhiloxWords counter, uint32_t key0,
                                                  uint32_t key1) {
  uint32_t* c = counter.word;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53u} * c[0];
    const uint64_t product1 = uint64_t{0xcd9e8d57u} * c[2];
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c[1] = static_cast<uint32_t>(product1);
    c[2] = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c[3] = static_cast<uint32_t>(product0);
    key0 += 0x9e3779b9u;  // the golden ratio's digits
    key1 += 0xbb67ae85u;  // those of the root of 3, less 1
  }
  return counter;
}

// 64 random bits for the token at `position` of a sequence whose request has this seed.
inline __host__ __device__ uint64_t RandomBits(uint64_t seed, uint32_t position) {
  const PhiloxWords words = Philox4x32({{position, 0, 0, 0}}, static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32));
  return static_cast<uint64_t>(words.word[1]) << 32 | words.word[0];
}
// end::philox[]

}  // namespace tinyvllm
