#include "runner/encoder_probes.h"

#include <vector>

namespace ferry::runner {

Status observe_encoder(const MethodChain& chain, const EncoderProbeSink* sink) {
  for (const MethodChain::Link& link : chain.links()) {
    for (const packer::ManifestProbe& probe : link.ports->probes) {
      FERRY_RETURN_IF_ERROR(
          link.method->observe(probe.value, [sink, name = probe.name](const TensorView& value) {
            if (!*sink || value.shape.empty() || value.shape.back() < 1) return;
            const std::vector<float> values = probe_floats(value);
            (*sink)(name, std::ssize(values) / value.shape.back(), values);
          }));
    }
  }
  return {};
}

}  // namespace ferry::runner
