// Installs the handlers of signals.
#pragma once

#include <string>

namespace ferry::cli {

// A mapped file that shrinks while it is read raises SIGBUS, which ends the process with an I/O
// error. The first SIGINT, SIGTERM or SIGHUP asks the work to stop (core/interrupt.h), the second
// ends the process. Signals that the parent process ignored stay ignored.
void install_signal_handlers();

// After this call, the handler of SIGBUS also prints the JSON document of its error, for `verb`.
void announce_json(const std::string& verb);

// Makes another signal ask the work to stop, because schedulers send their own signals.
void also_stop_on(int signal);

// Lets SIGINT, SIGTERM and SIGHUP end the process again, for verbs that wait for input and have
// nothing to clean up.
void let_signals_end_the_process();

}  // namespace ferry::cli
