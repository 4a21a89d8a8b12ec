// Random bits by number: word 7 of a key is the same whoever computes it, and when.
#pragma once

#include <cstdint>

namespace tinyvllm {

// SplitMix64's mixing (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA
// 2014) of a key and a counter.
inline uint64_t RandomWord(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace tinyvllm
