// The challenge of lesson 14: who goes first, if all wait? A prefix cache finds what an earlier
// request has computed, unless it was evicted in between. So it matters who comes after whom: those
// who begin alike should follow each other.
//
//   const std::vector<size_t> order = PrefixOrder(prompts, block_size, num_cached_blocks);
//
// Zheng et al., SGLang: Efficient Execution of Structured Language Model Programs, 2024, section 3,
// show that this order (depth first through the tree of all prompts) computes as little as
// possible.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace tinyvllm {

// The numbers of all prompts, in an order in which each one, run alone against a cache that evicts
// the block used least recently and holds at least the longest prompt, computes no whole block that
// an earlier one had: prompts whose first n blocks are equal stand together, for every n.
//
// num_cached_blocks(prompt) says of how many blocks, from the first on, the cache knows already.
// Among groups (or prompts) that begin with equal blocks, those come first that have the prompt
// with the most cached blocks, and among equals those that have the one that came first: what is
// cached must be used before it is evicted. Tokens behind the last whole block do not count.
std::vector<size_t> PrefixOrder(
    const std::vector<std::vector<int>>& prompts, int block_size,
    const std::function<int(const std::vector<int>& prompt)>& num_cached_blocks);

}  // namespace tinyvllm
