// error: ignoring return(ed)? value
#include "core/file.h"

void f(ferry::OutputFile& file) {
#ifdef MISUSE
  file.sync_and_close();
#else
  if (!file.sync_and_close()) return;
#endif
}
