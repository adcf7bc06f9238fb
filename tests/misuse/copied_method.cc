// error: (use of|call to) (deleted|implicitly-deleted)
#include "runner/method.h"

ferry::runner::Method f(ferry::runner::Method& method) {
#ifdef MISUSE
  return method;
#else
  return std::move(method);
#endif
}
