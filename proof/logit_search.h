// find_routes_by_logits() finds the experts of a reference in layers around which it has neither
// routes nor hidden states.
#pragma once

#include "core/result.h"
#include "proof/expert_search.h"
#include "proof/expert_ties.h"

namespace ferry::proof {

// Goes through the tokens in order. Where the logits of a token are further from the reference's
// than those of most tokens, other routes of the token are tried that tie within the error of the
// logits, in any layer. One is kept if it brings the logits near, or two are together; layers
// behind it and later tokens choose again. `groups` are those of the routers. Layers in `known`
// keep these routes, which are of all tokens.
Result<FoundRoutes> find_routes_by_logits(runner::Decoder& decoder,
                                          const packer::Manifest& manifest,
                                          const Reference& reference, const ReferencePrompt& prompt,
                                          const ExpertGroups& groups, runner::ExpertRoutes known);

}  // namespace ferry::proof
