// Coding describes which weights and activations of a bundle are quantised, as far as that decides
// how far outputs may be from those before quantisation. docs/verifying.md says how the floors were
// measured.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "packer/bundle_reader.h"

namespace ferry::packer {

struct Coding {
  // The fewest bits of a matrix in a product; 0: no such matrix is quantised.
  int bits = 0;
  int64_t group = 0;  // largest number of elements that share a scale in those matrices; 0: a row
  bool dynamic = false;  // activations are quantised to 8 bits before any of those matrices
  // Bits of the embedding tables; 0: the tables are not quantised.
  int table_bits = 0;

  bool operator==(const Coding&) const = default;
};

// Whether the option --quantize-embedding applies to the weight of this name.
bool is_embedding_table(std::string_view name);

// Returns the keys that programs read as tensors. Keys that only delegates read are left out.
std::set<std::string> tensor_keys(const Bundle& bundle);

// Returns nullopt if nothing is quantised. Only the components in `roles` count.
std::optional<Coding> coding_of(const Bundle& bundle, std::span<const std::string_view> roles);
// Formats a coding, such as "8da4w-g32, embedding 4".
std::string name_of(const Coding& coding);

// Returns the least signal-to-noise ratio, in dB, of tensors of the first layers, compared with the
// model before quantisation.
double coded_floor_db(const Coding& coding, bool delta_rule);
// Returns the least ratio compared with the model that has these codes and f32 activations; nullopt
// if activations are not quantised.
std::optional<double> activation_floor_db(const Coding& coding, bool delta_rule);

}  // namespace ferry::packer
