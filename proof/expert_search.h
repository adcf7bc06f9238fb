// Finds the experts that the reference's tokens passed through, for references that do not state
// them. If two experts have nearly equal scores, rounded weights can choose another expert than the
// reference did.
#pragma once

#include <vector>

#include "core/result.h"
#include "proof/expert_ties.h"
#include "proof/reference.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct FoundRoutes {
  runner::ExpertRoutes routes;  // for every layer with experts, for the positions of the prompt
  int64_t exchanged = 0;        // choices that differ from the router's
};

// Starts with the choice of the bundle's routers and goes through the layers in order. If the
// hidden state of a token is further from the reference's than those of other tokens, routes are
// tried whose scores tie within the error around the layer (expert_ties.h). The best route is kept
// if it brings the hidden state near, and later layers choose again. If the reference has no hidden
// states around a layer, find_routes_by_logits() decides its routes.
Result<FoundRoutes> find_routes(runner::Decoder& decoder, const packer::Manifest& manifest,
                                const Reference& reference, const ReferencePrompt& prompt);

// Finds the experts of layers around which the reference has neither routes nor hidden states. Goes
// through the tokens in order. If the logits of a token are further from the reference's than those
// of most tokens, other routes of the token are tried, in any layer, that tie within the error of
// the logits. A route is kept if it brings the logits near, alone or together with another one;
// later layers and later tokens choose again. `groups` are the expert groups of the routers. Layers
// in `known` keep the routes that `known` has for all tokens.
Result<FoundRoutes> find_routes_by_logits(runner::Decoder& decoder,
                                          const packer::Manifest& manifest,
                                          const Reference& reference, const ReferencePrompt& prompt,
                                          const ExpertGroups& groups, runner::ExpertRoutes known);

}  // namespace ferry::proof
