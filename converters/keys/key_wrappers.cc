// wrapper_prefixes(): what wrappers of models put before keys.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {
namespace {

// Wrappers of PyTorch that put a prefix before all keys of a state dict.
struct Wrapper {
  std::string_view prefix, rule;
};
constexpr Wrapper kWrappers[] = {
    {"_orig_mod.", "torch.compile"}, {"module.", "DataParallel"},  // and DistributedDataParallel
};

}  // namespace

std::vector<TakenPrefix> wrapper_prefixes(const std::vector<KeyedTensor>& tensors) {
  std::vector<TakenPrefix> taken;
  if (tensors.empty()) return taken;
  size_t length = 0;
  const auto all_have = [&](const Wrapper& wrapper) {
    return std::ranges::all_of(tensors, [&](const KeyedTensor& tensor) {
      return std::string_view(tensor.key).substr(length).starts_with(wrapper.prefix);
    });
  };
  for (;;) {
    const auto* found = std::ranges::find_if(kWrappers, all_have);
    if (found == std::end(kWrappers)) return taken;
    taken.push_back({std::string(found->prefix), std::string(found->rule)});
    length += found->prefix.size();
  }
}

}  // namespace ferry::converters
