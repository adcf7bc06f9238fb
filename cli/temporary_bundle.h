// A checkpoint as a bundle in a temporary folder, which is gone with this object.
#pragma once

#include <string>

#include "cli/context.h"
#include "core/result.h"

namespace ferry::cli {

// Move-only.
class TemporaryBundle {
 public:
  TemporaryBundle() = default;
  ~TemporaryBundle() { remove(); }
  TemporaryBundle(TemporaryBundle&& other) noexcept;
  TemporaryBundle& operator=(TemporaryBundle&& other) noexcept;

  // Converts `checkpoint` as `ferry convert` does without options, in TMPDIR or /tmp. kIo where
  // there is no room.
  static Result<TemporaryBundle> make(Context& context, const std::string& checkpoint);

  const std::string& path() const { return path_; }  // of the bundle; empty where there is none
  // A bundle that is open stays readable: its files are mapped, and their space is free again at
  // the end of the process, whatever ends it.
  void remove();

 private:
  std::string root_, path_;
};

}  // namespace ferry::cli
