// StatedValues reads what a program states about itself in methods without inputs that return
// literals (ExecuTorch's constant methods, such as get_vocab_size).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry::packer {

class StatedValues {
 public:
  // `program` must outlive this object. `file` begins the messages.
  StatedValues(const pte::Program& program, std::string file)
      : program_(program), file_(std::move(file)) {}

  bool has(std::string_view method) const { return program_.find(method) != nullptr; }
  // Returns nullopt if there is no such method; kBadInput if it gives anything else.
  Result<std::optional<int64_t>> integer(std::string_view method) const;
  Result<std::optional<double>> real(std::string_view method) const;
  Result<std::optional<bool>> boolean(std::string_view method) const;
  // Returns the outputs of a method as a list.
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view method) const;
  Result<std::optional<std::vector<pte::Value>>> list(std::string_view method) const;

  // kBadInput if the method exists and gives another number. `of` says where `number` comes from,
  // such as "the output logits of method 'forward'".
  Status expect(std::string_view method, int64_t number, std::string_view of) const;

  // Returns an error with the message "FILE: method get_x WHAT".
  Failure bad(std::string_view method, const std::string& what) const;
  const std::string& file() const { return file_; }

 private:
  template <class T>
  Result<std::optional<T>> single(std::string_view method, std::string_view expected) const;

  const pte::Program& program_;
  std::string file_;
};

}  // namespace ferry::packer
