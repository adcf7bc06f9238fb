// The options of the library as dictionaries of Python, whose keys are the members of the structs.
// None counts as absent. Samples of sound are an array of one dimension, f32 or f64. TypeError for
// a value of another type and for names that the struct lacks; ferry.UsageError for an unknown
// word.
#pragma once

#include <ferry/ferry.h>
#include <nanobind/nanobind.h>

namespace ferry::python {

ConvertOptions convert_options(const nanobind::dict& given);
WriteOptions write_options(const nanobind::dict& given);
OpenOptions open_options(const nanobind::dict& given);
GeneratorOptions generator_options(const nanobind::dict& given);
Sound sound_of(const nanobind::dict& given);
TranscribeOptions transcribe_options(const nanobind::dict& given);
Prompt prompt_of(const nanobind::dict& given);
GenerateOptions generate_options(const nanobind::dict& given);
EmbedOptions embed_options(const nanobind::dict& given);
VerifyOptions verify_options(const nanobind::dict& given);
AdapterEdit adapter_edit(const nanobind::dict& given);
SignOptions sign_options(const nanobind::dict& given);
SignatureCheckOptions signature_check_options(const nanobind::dict& given);

}  // namespace ferry::python
