// Which experts the reference's tokens passed through. References do not say, and where two experts
// score nearly alike a rounded weight decides between them.
#pragma once

#include <vector>

#include "core/result.h"
#include "proof/reference.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct FoundRoutes {
  runner::ExpertRoutes routes;  // of every layer with experts, for the positions of the prompt
  int64_t exchanged = 0;        // choices that are not the router's own
};

// Starts with what the bundle's routers choose. In the first layer where the hidden state of a
// token is further from the reference's than those of the others, one expert of that token is
// exchanged for another whose score is the same up to the error that the layer's input has already;
// the exchange is kept where it brings the hidden state near. So on, layer by layer. Needs the
// hidden states of the reference; without them the routers' own choice is returned.
Result<FoundRoutes> find_routes(runner::Decoder& decoder, const packer::Manifest& manifest,
                                const Reference& reference, const ReferencePrompt& prompt);

}  // namespace ferry::proof
