#include "listing/native_package.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/checked.h"
#include "core/text.h"
#include "formats/ptn/package.h"

namespace ferry::listing {
namespace {

// Returns 0 for sizes without a bound, and for more bytes than a number holds.
uint64_t bytes_of(const ptn::Value& value) {
  const auto numel = checked_numel(value.sizes);
  if (!numel || *numel < 0) return 0;
  const auto bits = checked_mul<int64_t>(*numel, dtype_bits(value.dtype));
  return bits ? static_cast<uint64_t>(*bits) / 8 : 0;
}

ListedValue list_value(const ptn::Value& value) {
  const std::string& codes = value.quantisation;
  return {.name = value.name,
          .kind = codes.empty() ? std::string(dtype_name(value.dtype)) : printable(codes),
          .shape = value.sizes,
          .dynamic = value.dynamic,
          .bytes = bytes_of(value)};
}

ListedMethod list_method(const ptn::Method& method, const ptn::Package& package) {
  ListedMethod listed;
  listed.name = method.name;
  for (const ptn::Value& value : method.inputs) listed.inputs.push_back(list_value(value));
  for (const ptn::Value& value : method.outputs) listed.outputs.push_back(list_value(value));
  for (const ptn::Value& value : method.buffers) listed.buffers.push_back(list_value(value));
  std::set<const TensorEntry*> tensors;
  for (const ptn::Constant& constant : method.constants) {
    const TensorEntry* tensor = package.find(constant.key);
    if (constant.mutated) {
      listed.buffers.push_back(list_value(constant.value));
      listed.buffers.back().name = constant.key;
      listed.buffers.back().stored = true;
    } else {
      tensors.insert(tensor);
    }
    for (const auto& [key, dtype] : constant.parameters) tensors.insert(package.find(key));
  }
  listed.constants = tensors.size();
  for (const TensorEntry* tensor : tensors) listed.constant_bytes += tensor->bytes;
  listed.operators.assign(method.operators.begin(), method.operators.end());
  for (const auto& [name, count] : method.operators) listed.instructions += count;
  return listed;
}

ListedTensor list_tensor(const TensorEntry& tensor) {
  return {.name = tensor.name,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .bytes = tensor.bytes,
          .stored = std::string(dtype_name(tensor.dtype)),
          .stored_bytes = tensor.bytes};
}

}  // namespace

Result<bool> is_native_package(const InputFile& file) {
  std::array<std::byte, 64> start = {};
  const auto bytes = std::span(start).first(std::min<uint64_t>(start.size(), file.size()));
  FERRY_RETURN_IF_ERROR(file.read_at(0, bytes));
  return ptn::is_package(bytes) || file.path().ends_with(".ptn");
}

Result<Listing> list_native_package(const InputFile& file) {
  const std::string& path = file.path();
  const ptn::Package package = FERRY_TRY(ptn::read_package(file, printable(path)));
  Listing listing{.kind = "program", .path = path};
  listing.files.push_back({base_name(path), file.size()});
  ListedProgram& program = listing.programs.emplace_back();
  program.file = base_name(path);
  program.program_bytes = package.graph_bytes;
  for (const TensorEntry& tensor : package.tensors) {
    listing.tensors.push_back(list_tensor(tensor));
    program.constant_bytes += tensor.bytes;
  }
  for (const auto& [alias, owner] : package.aliases) {
    listing.tensors.push_back(list_tensor(*package.find(owner)));
    listing.tensors.back().name = alias;
    listing.tensors.back().shares = owner;
  }
  for (const ptn::Method& method : package.methods) {
    program.methods.push_back(list_method(method, package));
  }
  return listing;
}

}  // namespace ferry::listing
