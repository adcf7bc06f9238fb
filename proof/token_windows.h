// Token windows: how sequences that are longer than a context are given to a model whose
// predictions are counted. The protocol is the one that transformers describes for models of a
// fixed length (docs/perplexity.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry::proof {

// Tokens [begin, end) of a sequence, the first of them at position 0. Tokens from `counted` on are
// those whose predictions count; there is one at least.
struct TokenWindow {
  size_t sequence = 0;
  int64_t begin = 0, end = 0, counted = 0;
  bool operator==(const TokenWindow&) const = default;
  int64_t tokens() const { return end - begin; }
};

struct WindowOptions {
  int64_t window = 0;  // tokens, 2 at least
  int64_t stride = 0;  // 1 to `window`
};

// Windows begin at every multiple of the stride until one reaches the end of the sequence. Every
// token is counted in the first window that has it. The first token of a window is never counted,
// because nothing is before it: so each token of a sequence but the first counts once, and with a
// stride of the whole window the first token of every window does not count.
std::vector<TokenWindow> windows_of(std::span<const std::vector<int64_t>> sequences,
                                    const WindowOptions& options);

}  // namespace ferry::proof
