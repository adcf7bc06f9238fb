#include "runner/decoder_ports.h"

#include <algorithm>

#include "core/program_interface.h"
#include "runner/deepstack_rows.h"
#include "runner/token_embedder.h"

namespace ferry::runner {
namespace {

// Programs of other tools may give logits in half precision.
DType logits_dtype(const ProgramSet& set) {
  const ProgramSet::Ports ports = set.ports(kForwardMethod);
  const auto found = std::ranges::find(ports.outputs, kLogitsPort, &packer::ManifestPort::name);
  const bool half = found != ports.outputs.end() && is_half(found->dtype);
  return half ? found->dtype : DType::kF32;
}

}  // namespace

bool has_port(const ProgramSet& set, std::string_view name) {
  const ProgramSet::Ports ports = set.ports(kForwardMethod);
  return std::ranges::find(ports.inputs, name, &packer::ManifestPort::name) != ports.inputs.end();
}

int64_t position_count(const ProgramSet& set) {
  const ProgramSet::Ports ports = set.ports(kForwardMethod);
  const auto found = std::ranges::find(ports.inputs, kInputPosPort, &packer::ManifestPort::name);
  // A bundle may state any shape; bind_protocol() refuses others than these two.
  const int64_t most = set.bundle().manifest().prefill_length;
  return found != ports.inputs.end() && found->shape == Shape{most} ? most : 1;
}

bool takes_ends(const ProgramSet& set) { return has_port(set, kAttentionEndPort); }

std::vector<PortType> cross_inputs(const ProgramSet::Ports& ports) {
  std::vector<PortType> inputs;
  for (const packer::ManifestPort& port : ports.inputs) {
    const bool is_cross =
        is_layer_port(port.name, kCrossKPort) || is_layer_port(port.name, kCrossVPort);
    if (is_cross) inputs.push_back({port.name, DType::kF32, port.shape});
  }
  return inputs;
}

Result<MethodChain> bind_protocol(ProgramSet& set, std::span<const PortType> cross) {
  const packer::Manifest& m = set.bundle().manifest();
  const PortType tokens = {kTokensPort, DType::kI64, {1, m.prefill_length}};
  const PortType embeddings = {
      kEmbeddingsPort, DType::kF32, {1, m.prefill_length, embedding_width(m)}};
  std::vector<PortType> inputs = {TokenEmbedder::is_in(set.bundle()) ? embeddings : tokens};
  if (has_port(set, kInputPosPort)) {
    inputs.push_back({kInputPosPort, DType::kI64, {position_count(set)}});
  }
  if (takes_ends(set)) {
    inputs.push_back({kAttentionEndPort, DType::kI64, {1, m.prefill_length}});
  }
  if (has_port(set, kRopePositionsPort)) {
    inputs.push_back({kRopePositionsPort, DType::kI64, {kPlaces, m.prefill_length}});
  }
  if (const int64_t layers = deepstack_layers(m); layers > 0) {
    inputs.push_back({kDeepstackPort, DType::kF32, {layers, m.prefill_length, m.hidden_size}});
  }
  if (has_port(set, kLayerTokensPort)) {
    inputs.push_back({kLayerTokensPort, DType::kI64, {1, m.prefill_length}});
  }
  inputs.insert(inputs.end(), cross.begin(), cross.end());
  const PortType outputs[] = {
      {kLogitsPort, logits_dtype(set),
       m.all_logits ? Shape{1, m.prefill_length, m.vocab_size} : Shape{1, m.vocab_size}}};
  return set.bind(kForwardMethod, inputs, outputs);
}

}  // namespace ferry::runner
