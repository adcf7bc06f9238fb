// The streams of C under the names that copied archives use for them (python/CMakeLists.txt).
#include <cstdio>

extern "C" {
FILE* ferry_stdin = stdin;
FILE* ferry_stdout = stdout;
FILE* ferry_stderr = stderr;
}
