// The handling of signals.
#pragma once

#include <string>

namespace ferry::cli {

// SIGBUS, which a mapped file raises that shrinks while it is read, becomes an I/O error. The first
// SIGINT, SIGTERM or SIGHUP asks the work to stop (core/interrupt.h), the second ends the process.
// Signals that the parent had ignored stay ignored.
void install_signal_handlers();

// From now on the document of that error goes to stdout too, for `verb`.
void announce_json(const std::string& verb);

// Another signal that asks to stop in the same way: schedulers have their own.
void also_stop_on(int signal);

// SIGINT, SIGTERM and SIGHUP end the process again: for verbs that wait for input and leave nothing
// behind.
void let_signals_end_the_process();

}  // namespace ferry::cli
