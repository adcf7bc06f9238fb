#include "proof/same_model.h"

#include <fmt/format.h>

#include <string>

#include "core/text.h"

namespace ferry::proof {
namespace {

std::string model_of(const packer::Manifest& m) {
  return fmt::format("{} with {} layers, hidden {}, vocabulary {}", quoted(m.model_type),
                     m.num_layers, m.hidden_size, m.vocab_size);
}

}  // namespace

Status check_same_model(const packer::Bundle& bundle, const packer::Bundle& other) {
  const std::string ours = model_of(bundle.manifest()), theirs = model_of(other.manifest());
  if (ours == theirs) return {};
  return bad_input(fmt::format("{}: is another model than {}: {}; the other is {}",
                               printable(other.path()), printable(bundle.path()), theirs, ours));
}

}  // namespace ferry::proof
