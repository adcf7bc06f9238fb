# Installs the build tree BUILD into DIRECTORY. Builds and runs the example of docs/library.md, stranger.cc
# and listener.cc there, outside of the source tree.
#   cmake -DSOURCE=... -DBUILD=... -DDIRECTORY=... -DCOMPILER=... -P run.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${DIRECTORY})
file(MAKE_DIRECTORY ${DIRECTORY}/example)

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${code}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# extract(LANGUAGE FILE) writes the document's only block of LANGUAGE to FILE.
function(extract language file)
  file(READ ${SOURCE}/docs/library.md document)
  string(FIND "${document}" "```${language}\n" begin)
  if(begin EQUAL -1)
    message(FATAL_ERROR "docs/library.md has no ${language}")
  endif()
  string(LENGTH "```${language}\n" skip)
  math(EXPR begin "${begin} + ${skip}")
  string(SUBSTRING "${document}" ${begin} -1 rest)
  string(FIND "${rest}" "```" length)
  string(SUBSTRING "${rest}" 0 ${length} block)
  file(WRITE ${DIRECTORY}/example/${file} "${block}")
endfunction()

extract(cmake CMakeLists.txt)
extract(cpp example.cc)
file(COPY ${SOURCE}/tests/library/stranger.cc ${SOURCE}/tests/library/listener.cc DESTINATION ${DIRECTORY}/example)
file(APPEND ${DIRECTORY}/example/CMakeLists.txt
     "foreach(program stranger listener)\n  add_executable(\${program} \${program}.cc)\n"
     "  target_link_libraries(\${program} PRIVATE ferry::ferry)\nendforeach()\n")
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${DIRECTORY}/prefix)
# The document must list the installed headers. The example includes all of them, and does not compile if one
# includes an internal header.
file(STRINGS ${SOURCE}/docs/library.md rows REGEX "^[|] `ferry/[a-z_]+[.]h`")
string(REGEX MATCHALL "ferry/[a-z_]+[.]h" documented "${rows}")
file(GLOB_RECURSE installed RELATIVE ${DIRECTORY}/prefix/include ${DIRECTORY}/prefix/include/*)
list(SORT documented)
list(SORT installed)
if(NOT documented STREQUAL installed)
  message(FATAL_ERROR "docs/library.md lists ${documented}, and installed are ${installed}")
endif()
run(${CMAKE_COMMAND} -G Ninja -S ${DIRECTORY}/example -B ${DIRECTORY}/build
    -DCMAKE_PREFIX_PATH=${DIRECTORY}/prefix -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${DIRECTORY}/build)
set(sample ${SOURCE}/testdata/qwen3_5_text)
run(${DIRECTORY}/build/example ${sample} ${DIRECTORY}/bundle ${sample}/golden.safetensors)
if(NOT output MATCHES "^token: [0-9]+\ntoken: [0-9]+\nrefused: 2\nparity\n")
  message(FATAL_ERROR "the example printed: ${output}")
endif()
file(MAKE_DIRECTORY ${DIRECTORY}/stranger)
file(READ ${SOURCE}/testdata/source/t5/answers.json answers)
string(JSON text GET "${answers}" 0 text)
string(JSON answer GET "${answers}" 0 answer)
run(${DIRECTORY}/build/stranger ${SOURCE}/testdata/trained
    ${SOURCE}/testdata/encoder/embedding_gemma
    ${SOURCE}/testdata/hostile/hdf5/h5_valid.h5 ${DIRECTORY}/stranger
    ${SOURCE}/testdata/golden/llama ${SOURCE}/testdata/adapters/formal
    ${SOURCE}/testdata/source/t5 "${text}" "${answer}" ${SOURCE}/testdata/vision/qwen3_vl)
file(MAKE_DIRECTORY ${DIRECTORY}/listener)
file(READ ${SOURCE}/testdata/speech/whisper/transcripts.json transcripts)
string(JSON transcript GET "${transcripts}" 0 tokens)
file(READ ${SOURCE}/testdata/speech/voxtral/answers.json answers)
string(JSON answer GET "${answers}" 3 tokens)
file(READ ${SOURCE}/testdata/speech/gemma4/answers.json answers)
string(JSON seen GET "${answers}" 2 tokens)
run(${DIRECTORY}/build/listener ${SOURCE}/testdata/speech/whisper "${transcript}"
    ${SOURCE}/testdata/speech/voxtral "${answer}" ${SOURCE}/testdata/sound/mono_16.wav ${DIRECTORY}/listener
    ${SOURCE}/testdata/speech/gemma4 "${seen}" ${SOURCE}/testdata/sound/mono_8.wav
    ${SOURCE}/testdata/media/images/noise.png)
run(${DIRECTORY}/prefix/bin/ferry check ${DIRECTORY}/bundle)
file(REMOVE_RECURSE ${DIRECTORY})
