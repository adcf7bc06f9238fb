// join_caches: attention over a cache that is an input, without copies of the cache. Programs state
// it as slice, dequantize or to_copy of the cache, cat with the new columns, view, bmm. Each of
// these writes all of the cache again; the product alone reads it once.
#pragma once

#include "runner/method_loading.h"

namespace ferry::runner {

// Lets bmm read caches where the caller has them, in the dtype that they have. The steps between
// are left out; cat copies what follows the cache. The bits of all results stay the same. Applies
// where nothing else can tell: values in between have one writer and no other reader, are no
// outputs, and their memory is not used for anything else meanwhile. Call after all else is loaded.
void join_caches(Loading& loading);

// Steps as the program states them, if `value` is one that join_caches leaves out.
void compute_again(MethodState& state, int32_t value);

}  // namespace ferry::runner
