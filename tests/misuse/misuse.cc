// Misuse that must not compile. Every line that ends in "// error: REGEX" makes the compiler report
// one error, which REGEX matches; no other line of this file makes one (misuse.cmake).
#include "core/file.h"
#include "plan/conversion.h"
#include "runner/method.h"

namespace ferry {

Status unused(OutputFile& file) {
  if (!read_text_file("path", 1)) return {};
  read_text_file("path", 1);  // error: ignoring return(ed)? value
  if (!file.sync_and_close()) return {};
  file.sync_and_close();  // error: ignoring return(ed)? value
  return {};
}

Status result_as_value() {
  const std::string text = FERRY_TRY(read_text_file("path", 1));
  const std::string wrong = read_text_file("path", 1);  // error: conversion from
  return Status();
}

runner::Method moved(runner::Method& method) { return std::move(method); }
runner::Method copied(runner::Method& method) {
  return method;  // error: (use of|call to) (deleted|implicitly-deleted)
}

plan::Conversion moved(plan::Conversion& conversion) { return std::move(conversion); }
plan::Conversion copied(plan::Conversion& conversion) {
  return conversion;  // error: (use of|call to) (deleted|implicitly-deleted)
}

}  // namespace ferry
