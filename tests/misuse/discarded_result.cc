// error: ignoring return(ed)? value
#include "core/file.h"

void f() {
#ifdef MISUSE
  ferry::read_text_file("path", 1);
#else
  if (!ferry::read_text_file("path", 1)) return;
#endif
}
