// The results of the library as dictionaries of Python. Their keys are those of the documents that
// the program prints with --json (docs/schemas), wherever these have the member.
#pragma once

#include <ferry/ferry.h>
#include <nanobind/nanobind.h>

namespace ferry::python {

nanobind::dict to_dict(const PlanSummary& summary);
nanobind::dict to_dict(const BundleInfo& info);
nanobind::dict to_dict(const Inspection& inspection);
nanobind::dict to_dict(const CheckResult& result);
nanobind::dict to_dict(const AdapterInfo& adapter);
nanobind::dict to_dict(const AdapterList& list);
nanobind::dict to_dict(const Signature& signature);
nanobind::dict to_dict(const SignatureCheck& check);
nanobind::dict to_dict(const Generation& generation);
nanobind::dict to_dict(const Transcription& transcription);
nanobind::dict to_dict(const Verification& verification);

}  // namespace ferry::python
