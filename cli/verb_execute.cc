// ferry execute runs one method of any program, also of other tools, on the inputs of a script.

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/option_values.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/bundled.h"
#include "formats/pte/reader.h"
#include "proof/bundled_program_proof.h"
#include "runner/method.h"

namespace ferry::cli {
namespace {

constexpr uint64_t kMaxScriptBytes = 256 << 20;
constexpr uint64_t kMaxInputBytes = uint64_t{1} << 40;

struct ExecuteLine {
  std::string program, script, outdir;
  std::string method = "forward";
  std::vector<std::string> data;
  bool poison = false;
  std::optional<int64_t> memory;
};

// An input of one execution.
struct Input {
  DType dtype = DType::kI64;
  Shape shape;
  std::vector<std::byte> bytes;
  runner::TensorView view() const { return {dtype, shape, bytes}; }
};

// The mapped program and data files.
struct Files {
  MappedFile program_file;
  pte::LoadedProgram program;
  std::vector<pte::TestSuite> suites;  // test cases of a bundled program; else empty
  std::vector<MappedFile> data_files;
  std::vector<std::unique_ptr<ptd::DataFile>> data;
  std::vector<runner::ExternalTensor> external;
};

struct Output {
  size_t run, index;
  DType dtype;
  Shape shape;
  std::string first;                // text of the first few values
  std::optional<std::string> text;  // the whole text, if the output is a String
  std::string_view type() const { return text ? "string" : dtype_name(dtype); }
  std::string stem() const { return fmt::format("run{}_out{}", run, index); }
};

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return parts;
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(separators), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Reads the sizes behind the last '@' of a word, and removes them from the word. Returns false if
// there are none.
bool take_sizes(std::string_view& word, Shape& sizes) {
  const size_t at = word.rfind('@');
  if (at == std::string_view::npos) return false;
  Shape parsed;
  for (std::string_view part : split(word.substr(at + 1), ",")) {
    int64_t size = 0;
    if (!parse_number(part, size) || size < 0) return false;  // the '@' is part of a file name
    parsed.push_back(size);
  }
  sizes = std::move(parsed);
  word = word.substr(0, at);
  return true;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const std::byte* begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

bool fits_integer(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kU8:
      return std::in_range<uint8_t>(value);
    case DType::kI8:
      return std::in_range<int8_t>(value);
    case DType::kU16:
      return std::in_range<uint16_t>(value);
    case DType::kI16:
      return std::in_range<int16_t>(value);
    case DType::kU32:
      return std::in_range<uint32_t>(value);
    case DType::kI32:
      return std::in_range<int32_t>(value);
    case DType::kU64:
      return value >= 0;
    default:
      return true;
  }
}

// Appends a number in the dtype of the input. Returns false if the number does not fit the dtype.
bool append_number(DType dtype, std::string_view text, bool real, std::vector<std::byte>& bytes) {
  int64_t integer = 0;
  double number = 0;
  if (real ? !parse_number(text, number) : !parse_number(text, integer)) return false;
  if (!real) number = static_cast<double>(integer);
  switch (dtype) {
    case DType::kF64:
      append(bytes, number);
      return true;
    case DType::kF32:
      append(bytes, static_cast<float>(number));
      return true;
    case DType::kF16:
      append(bytes, f32_to_f16(static_cast<float>(number)));
      return true;
    case DType::kBF16:
      append(bytes, f32_to_bf16(static_cast<float>(number)));
      return true;
    default:
      break;
  }
  if (real) return false;
  const int64_t width = dtype_bytes(dtype);
  if (dtype == DType::kBool) integer = integer != 0 ? 1 : 0;
  if (!fits_integer(dtype, integer)) return false;
  const std::byte* begin = reinterpret_cast<const std::byte*>(&integer);  // little-endian
  bytes.insert(bytes.end(), begin, begin + width);
  return true;
}

Result<std::vector<std::byte>> read_bytes(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  if (file.size() > kMaxInputBytes) return bad_input(fmt::format("{}: too large", path));
  std::vector<std::byte> bytes(file.size());
  FERRY_RETURN_IF_ERROR(file.read_at(0, bytes));
  return bytes;
}

// Parses one word of a script line, such as i:1,2@1,2 or f:0.5@1 or x.bin@1,3. Without '@' the
// input has the declared sizes.
Result<Input> parse_input(std::string_view word, const runner::TensorView& declared) {
  const std::string_view whole = word;
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::kUsage, fmt::format("script: input {}: {}", quoted(whole), why));
  };
  Input input;
  input.dtype = declared.dtype;
  input.shape = declared.shape;
  const bool sized = take_sizes(word, input.shape);
  const bool real = word.starts_with("f:");
  if (real || word.starts_with("i:")) {
    for (std::string_view number : split(word.substr(2), ",")) {
      if (!append_number(input.dtype, number, real, input.bytes)) {
        return refuse(
            fmt::format("{} is not a value of {}", quoted(number), dtype_name(input.dtype)));
      }
    }
    const int64_t count = static_cast<int64_t>(input.bytes.size()) / dtype_bytes(input.dtype);
    if (!sized && declared.shape.size() == 1) input.shape = {count};
  } else {
    input.bytes = FERRY_TRY(read_bytes(std::string(word)));
  }
  const std::optional<int64_t> numel = checked_numel(input.shape);
  const std::optional<int64_t> bytes =
      numel ? checked_mul(*numel, dtype_bytes(input.dtype)) : std::nullopt;
  if (!bytes || static_cast<uint64_t>(*bytes) != input.bytes.size()) {
    return refuse(fmt::format("{} bytes do not fill {}{}", input.bytes.size(),
                              dtype_name(input.dtype), to_string(input.shape)));
  }
  return input;
}

Result<Files> open_files(const ExecuteLine& options) {
  Files files;
  std::map<std::string, std::string> owners;  // name of a tensor to its data file
  files.program_file = FERRY_TRY(MappedFile::open(options.program));
  files.program =
      FERRY_TRY(pte::read_any_program(files.program_file.bytes(), base_name(options.program)));
  const std::span<const std::byte> whole = files.program_file.bytes();
  if (pte::is_bundled(whole)) {
    files.suites = FERRY_TRY(pte::read_bundled(whole, base_name(options.program))).suites;
  }
  for (const std::string& path : options.data) {
    const MappedFile& file = files.data_files.emplace_back(FERRY_TRY(MappedFile::open(path)));
    const std::span<const std::byte> bytes = file.bytes();
    files.data.push_back(
        std::make_unique<ptd::DataFile>(FERRY_TRY(ptd::read_data_file(bytes, base_name(path)))));
    const ptd::DataFile& data = *files.data.back();
    for (const ptd::NamedTensor& tensor : data.tensors) {
      const auto [owner, is_new] = owners.emplace(tensor.key, path);
      if (!is_new) {
        return bad_input(fmt::format("{}: {} has a tensor of this name too (tensor {})",
                                     printable(path), printable(owner->second),
                                     quoted(tensor.key)));
      }
      const ptd::Segment& segment = data.segments[tensor.segment];
      files.external.push_back({tensor.key, tensor.dtype, tensor.sizes,
                                bytes.subspan(segment.offset, segment.size), tensor.is_tensor});
    }
  }
  return files;
}

Status make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return {};
  return fail(ErrorCode::kIo,
              fmt::format("{}: cannot create: {}", quoted(path), std::strerror(errno)));
}

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  return write_atomically(path, bytes, IfExists::kReplace);
}

// Returns the first few values of an output as text.
std::string first_values(const runner::TensorView& view) {
  constexpr size_t kShown = 8;
  std::string text;
  const size_t width = static_cast<size_t>(dtype_bytes(view.dtype));
  const size_t count = view.bytes.size() / width;
  for (size_t i = 0; i < std::min(count, kShown); ++i) {
    const std::byte* at = view.bytes.data() + i * width;
    const auto get = [at]<class T>(T value) {
      std::memcpy(&value, at, sizeof value);
      return value;
    };
    text += i == 0 ? "" : " ";
    switch (view.dtype) {
      case DType::kF64:
        text += fmt::format("{:.6g}", get(0.0));
        break;
      case DType::kF32:
        text += fmt::format("{:.6g}", get(0.0F));
        break;
      case DType::kF16:
        text += fmt::format("{:.4g}", f16_to_f32(get(uint16_t{0})));
        break;
      case DType::kBF16:
        text += fmt::format("{:.4g}", bf16_to_f32(get(uint16_t{0})));
        break;
      case DType::kI64:
        text += fmt::format("{}", get(int64_t{0}));
        break;
      case DType::kU64:
        text += fmt::format("{}", get(uint64_t{0}));
        break;
      case DType::kI32:
        text += fmt::format("{}", get(int32_t{0}));
        break;
      case DType::kU32:
        text += fmt::format("{}", get(uint32_t{0}));
        break;
      case DType::kI16:
        text += fmt::format("{}", get(int16_t{0}));
        break;
      case DType::kU16:
        text += fmt::format("{}", get(uint16_t{0}));
        break;
      case DType::kI8:
        text += fmt::format("{}", get(int8_t{0}));
        break;
      default:
        text += fmt::format("{}", get(uint8_t{0}));
        break;
    }
  }
  return count > kShown ? text + " ..." : text;
}

// Returns sizes as in a script, such as "1,128"; empty for rank 0.
std::string sizes_text(const Shape& shape) {
  std::string text;
  for (size_t i = 0; i < shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ",", shape[i]);
  }
  return text;
}

Status run_line(runner::Method& method, std::string_view line, size_t run) {
  const std::vector<std::string_view> words = split(line, " \t\r");
  if (words.size() != method.input_count()) {
    return fail(ErrorCode::kUsage,
                fmt::format("script: execution {} gives {} inputs, the method takes {}", run,
                            words.size(), method.input_count()));
  }
  std::vector<Input> inputs;
  for (size_t i = 0; i < words.size(); ++i) {
    inputs.push_back(FERRY_TRY(parse_input(words[i], method.input_meta(i))));
    FERRY_RETURN_IF_ERROR(method.set_input(i, inputs[i].view()));
  }
  return method.execute();
}

Result<std::vector<Output>> collect(const runner::Method& method, size_t run,
                                    const std::string& outdir) {
  std::vector<Output> outputs;
  for (size_t i = 0; i < method.output_count(); ++i) {
    const runner::TensorView& view = method.output(i);
    Output& output =
        outputs.emplace_back(Output{run, i, view.dtype, view.shape, first_values(view), {}});
    if (method.output_is_text(i)) {
      output.text.emplace(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
      output.first = quoted(*output.text);
    }
    if (!outdir.empty()) {
      FERRY_RETURN_IF_ERROR(
          write_file(fmt::format("{}/{}.bin", outdir, output.stem()), view.bytes));
    }
  }
  return outputs;
}

std::string as_text(const std::vector<Output>& outputs) {
  std::string text;
  for (const Output& o : outputs) {
    text += fmt::format("run {} output {}: {}{}  {}\n", o.run, o.index, o.type(),
                        to_string(o.shape), o.first);
  }
  return text;
}

std::string as_json(const ExecuteLine& options, size_t runs, const std::vector<Output>& outputs) {
  JsonWriter json;
  json.begin_object()
      .member("path", options.program)
      .member("method", options.method)
      .member("executions", runs);
  json.key("outputs").begin_array();
  for (const Output& o : outputs) {
    json.begin_object().member("run", o.run).member("output", o.index);
    json.member("dtype", o.type()).member("shape", o.shape);
    if (o.text) json.member("text", *o.text);
    if (!options.outdir.empty())
      json.member("path", o.stem() + ".bin").member("file", o.stem() + ".bin");
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

// The results of all executions so far.
struct Executions {
  std::vector<Output> outputs = {};
  std::string manifest = {};
  size_t runs = 0;
};

Status take_outputs(const ExecuteLine& options, const runner::Method& method, Executions& done) {
  for (Output& output : FERRY_TRY(collect(method, done.runs, options.outdir))) {
    done.manifest +=
        fmt::format("{} {} {}\n", output.stem(), output.type(), sizes_text(output.shape));
    done.outputs.push_back(std::move(output));
  }
  ++done.runs;
  return {};
}

Status run_script(const ExecuteLine& options, runner::Method& method, Executions& done) {
  std::string script = "\n";
  if (!options.script.empty()) {
    script = FERRY_TRY(read_text_file(options.script, kMaxScriptBytes));
  } else if (method.input_count() > 0) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{}: method {} takes {} inputs: --script is required",
                    base_name(options.program), quoted(options.method), method.input_count()));
  }
  std::string_view rest = script;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (split(line, " \t\r").empty() && method.input_count() > 0) continue;
    FERRY_RETURN_IF_ERROR(run_line(method, line, done.runs));
    FERRY_RETURN_IF_ERROR(take_outputs(options, method, done));
  }
  return {};
}

// Returns the test cases that a bundled program has for the method; nullptr if there are none or a
// script gives inputs.
const pte::TestSuite* suite_of(const Files& files, const ExecuteLine& options) {
  if (!options.script.empty()) return nullptr;
  const auto found = std::ranges::find(files.suites, options.method, &pte::TestSuite::method);
  return found == files.suites.end() ? nullptr : &*found;
}

Status run_cases(const ExecuteLine& options, runner::Method& method, const pte::TestSuite& suite,
                 Executions& done) {
  for (const pte::TestCase& test : suite.cases) {
    FERRY_RETURN_IF_ERROR(proof::execute_case(method, test, base_name(options.program)));
    FERRY_RETURN_IF_ERROR(take_outputs(options, method, done));
  }
  return {};
}

Result<int> execute(const ExecuteLine& options, Context& context) {
  const std::optional<uint64_t> memory = FERRY_TRY(memory_limit(options.memory));
  const Files files = FERRY_TRY(open_files(options));
  runner::Method method = FERRY_TRY(runner::Method::load(
      files.program, options.method, files.external, context.pool(),
      {.poison = options.poison, .memory = memory}, base_name(options.program)));
  if (!options.outdir.empty()) FERRY_RETURN_IF_ERROR(make_directory(options.outdir));
  Executions done;
  const pte::TestSuite* suite = suite_of(files, options);
  FERRY_RETURN_IF_ERROR(suite != nullptr ? run_cases(options, method, *suite, done)
                                         : run_script(options, method, done));
  if (!options.outdir.empty()) {
    FERRY_RETURN_IF_ERROR(
        write_file(options.outdir + "/manifest.txt", std::as_bytes(std::span(done.manifest))));
  }
  if (context.json) {
    context.print_result(as_json(options, done.runs, done.outputs), 0);
  } else if (!context.quiet) {
    context.print(as_text(done.outputs));
  }
  return 0;
}

}  // namespace

void add_execute(CommandLine& line) {
  auto options = std::make_shared<ExecuteLine>();
  line.verb("execute", "Execute one method of a program")
      .positional("PROGRAM", options->program, "A .pte or .bpte file")
      .option("--data FILE", options->data, "Weights outside of the program, a .ptd file")
      .option("--method", options->method, "Name of the method")
      .option("--script FILE", options->script,
              "One execution per line: i:1,2@1,2 or f:0.5@1 or a raw file x.bin@1,3; a bundled "
              "program has inputs of its own")
      .option("--outdir DIR", options->outdir, "Directory for raw outputs and manifest.txt")
      .option("--memory SIZE", options->memory,
              "Bytes that planned memory may have, such as 4GB; default: what the system has "
              "available")
      .flag("--poison", options->poison, "Fill planned memory with NaN first")
      .example("ferry execute model.pte --script inputs.txt --outdir outputs/",
               "Executes `forward` once for each line, and writes what it gives.")
      .example("printf 'i:1@1,1 i:0@1\\n' > inputs.txt",
               "Two inputs of one execution: an i64[1,1] and an i64[1], which are what the method "
               "takes.")
      .action([options](Context& context) { return execute(*options, context); });
}

}  // namespace ferry::cli
