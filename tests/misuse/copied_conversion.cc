// error: (use of|call to) (deleted|implicitly-deleted)
#include "pipeline/convert.h"

ferry::pipeline::Conversion f(ferry::pipeline::Conversion& conversion) {
#ifdef MISUSE
  return conversion;
#else
  return std::move(conversion);
#endif
}
