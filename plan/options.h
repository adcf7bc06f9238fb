// The options of a conversion, each described once. A description holds the name of the option, its
// values, its help, the program kinds and outputs that accept it, and its position in a manifest,
// beside the field that stores the value. describe() shows every description to a visitor. The
// command line declares the options that it is shown, the recorder writes the `options` of a
// manifest, the reader sets fields from texts, and the checker refuses options that a program kind
// or an output does not accept.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "converters/build_options.h"
#include "core/result.h"
#include "plan/conversion.h"
#include "plan/option.h"

namespace ferry::plan {

// Shows all options of a conversion, in the order of the command line. `options.style` decides
// which fields an option has if the field depends on the program kind.
void describe(OptionVisitor& visitor, ConvertOptions& options);
// The parts of describe(). The command line adds options of its own between them.
void describe_files(OptionVisitor& visitor, ConvertOptions& options);
void describe_weights(OptionVisitor& visitor, ConvertOptions& options);
void describe_quantization(OptionVisitor& visitor, graph::QuantizeOptions& options);
void describe_programs(OptionVisitor& visitor, ConvertOptions& options);
void describe_static_programs(OptionVisitor& visitor, ConvertOptions& options);
void describe_checkpoint(OptionVisitor& visitor, ConvertOptions& options);

// Sets the fields of the options that manifests record. Other names are ignored.
Status read_recorded_options(const OptionTexts& texts, ConvertOptions& options);

// kUsage if a field differs from its default although encoders do not accept its option.
Status check_encoder_options(const ConvertOptions& options);

// Returns the options that a manifest records: every option that decides bytes of the bundle, by
// name, with its value on the command line, in a fixed order. Options with default values are
// included; lengths are those in `build`. Options that the program kind does not accept are left
// out, and so are optional ones without a value. Paths are not recorded, because the bundle
// contains what the files decided (config.json, encodings, the reference).
OptionTexts recorded_options(const ConvertOptions& options, const converters::BuildOptions& build);

// The name of the dtype on the command line and in manifests, such as "keep".
std::string_view name_of(graph::WeightDType dtype);
std::optional<graph::WeightDType> weight_dtype_of(std::string_view name);

}  // namespace ferry::plan
