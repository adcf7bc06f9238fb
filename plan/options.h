// The options of a conversion, each described once: its name, its values, its help, the programs
// and outputs that take it, and its place in a manifest, beside the field that holds it. describe()
// shows each of them to a visitor. The command line declares what it is shown, the recorder writes
// the `options` of a manifest, the reader sets fields from texts of either, and the checker refuses
// what a program or an output does not take.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "converters/build_options.h"
#include "core/result.h"
#include "plan/conversion.h"
#include "plan/option.h"

namespace ferry::plan {

// Shows all options of a conversion, in the order of the command line. Fields of `options` that
// depend on the kind of program are those of options.style.
void describe(OptionVisitor& visitor, ConvertOptions& options);
// The parts of describe(), between which the command line has options of its own.
void describe_files(OptionVisitor& visitor, ConvertOptions& options);
void describe_weights(OptionVisitor& visitor, ConvertOptions& options);
void describe_programs(OptionVisitor& visitor, ConvertOptions& options);
void describe_static_programs(OptionVisitor& visitor, ConvertOptions& options);
void describe_checkpoint(OptionVisitor& visitor, ConvertOptions& options);

// Sets the fields of options that a manifest records. Other names are ignored.
Status read_recorded_options(const OptionTexts& texts, ConvertOptions& options);

// kUsage for a field that is not as ConvertOptions begins, and whose option encoders do not take.
Status check_encoder_options(const ConvertOptions& options);

// The options as a manifest states them: every option that decides bytes of the bundle, under its
// name and with the value that it has on the command line, in a fixed order: given or not, lengths
// as `build` settles them. An option without a meaning for the kind of the program is left out, and
// so is one that may be absent and is. There are no paths: what files have decided is in the bundle
// itself (config.json, encodings, the reference).
OptionTexts recorded_options(const ConvertOptions& options, const converters::BuildOptions& build);

// "keep", as on the command line and in manifests.
std::string_view name_of(graph::WeightDType dtype);
std::optional<graph::WeightDType> weight_dtype_of(std::string_view name);

}  // namespace ferry::plan
