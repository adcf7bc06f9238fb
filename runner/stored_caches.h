// read_stored_caches: attention over f16, bf16 or i8 caches without f32 copies of them. Programs
// state it as slice, _to_copy or dequantize of a cache, custom_sdpa. Each of these writes all
// positions again; the attention alone reads them once. Not a public header.
#pragma once

#include "runner/method_loading.h"

namespace ferry::runner {

// Lets custom_sdpa read caches as they are stored, and leaves out the steps between. The bits of
// all results stay the same. Applies where nothing else can tell, as join_caches does; undone by
// compute_again. Call after all else is loaded.
void read_stored_caches(Loading& loading);

}  // namespace ferry::runner
