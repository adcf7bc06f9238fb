// The default text of weight calibration: prose, verse and answers that were written for it, and
// passages of this project's documents and sources as they were when it was made. Every change of
// it changes the bundles that are calibrated with it.
#include "proof/calibration_text.h"

namespace ferry::proof {

std::string_view default_calibration_text() {
  return R"text(The ferry left the north shore a little before seven, when the mist still lay on the water and the far bank was only a darker line. There were nine passengers that morning. Two of them were farmers with crates of apples; one was a schoolteacher who read the whole way over and never once looked up; and the rest were workers from the mill, who stood together at the rail and talked about the price of flour. Old Marten, who had held the wheel for thirty-one years, said that it would rain before noon. Nobody believed him, because the sky above the hills was clear. By half past eleven the streets of the town were running with water, and the farmers had to cover their apples with their own coats.

"How did you know?" the teacher asked him on the way back. She had closed her book for the first time.

"The swallows," he said. "They fly low when the air grows heavy. And my left knee, which is older than the rest of me."

She laughed, and then, since there was nothing else to do, she asked him about the river. He told her how it had frozen in the winter of his tenth year, so hard that a man drove a team of horses across it for a bet; how the bridge had been planned three times and had failed three times, once for lack of money, once because of a war, and once because the engineer had married the mayor's daughter and moved to the coast. He told her about the flood, which he did not like to speak of. When they reached the pier it was almost dark, and she found that she had missed nothing in her book that was half as good.

My grandmother kept bees behind the house. As a child I was afraid of them, but she taught me to walk slowly, to wear light colours, and never to stand in front of the hive where they come and go. "A bee is not angry," she used to say. "A bee is busy. You are only angry when you get in the way." In July we took the honey. She would lift the frames one by one, brush the bees away with a goose feather, and hand the heavy combs to me. The kitchen smelled of wax and smoke for a week. We sold most of the jars at the market, gave some to the neighbours, and kept twelve, one for each month of the year.

Bread needs four things: flour, water, salt and time. Mix five hundred grams of flour with three hundred and fifty of lukewarm water and leave it for half an hour. Then add ten grams of salt and a spoon of starter, and knead the dough until it no longer sticks to your hands. Let it rise under a cloth until it has doubled, which takes about four hours in a warm room and a whole night in a cold one. Shape it, let it rest again, and bake it in a very hot oven with a bowl of water on the floor. It is done when it sounds hollow if you knock on the bottom. Do not cut it while it is hot, however much you want to.

The moon moves around the Earth in about twenty-seven days, and it turns once around itself in the same time, so we always see the same side of it. This is not a coincidence. The Earth's gravity pulls a little harder on the near side of the moon than on the far side, and over millions of years this difference slowed its rotation until the two periods were equal. The same force works in the other direction as well: the moon raises tides in our oceans, the tides rub against the sea floor, and the day becomes longer by about two thousandths of a second in each century. What the Earth loses in spin the moon gains in distance. It moves away from us by nearly four centimetres every year, roughly as fast as fingernails grow.

In 1854 a physician in London drew a map of one neighbourhood and marked each house in which someone had died of cholera. Most doctors of the time believed that the disease was carried by bad air. The marks on the map lay thick around a single water pump, and thinned out with every street that one walked away from it. There were exceptions, and he studied those most of all: a brewery near the pump where nobody fell ill, because the men drank beer; an old lady far away who died, because she had always liked the taste of that water and had it brought to her. The handle of the pump was taken off. It was years before others agreed with his conclusion, but the method, which is to count, to map, and to look hard at what does not fit, is still in use.

Dear Anna, thank you for your letter, which arrived on Tuesday together with the photographs. The one of you and the children on the beach is on my desk as I write this. You ask whether I have decided about the job. To tell the truth, I change my mind every day. The work sounds interesting, the pay is better, and I would be closer to Mother; but I would have to give up the garden, and the people here, and the walk along the canal in the evening. Perhaps it is wrong to make a list of reasons. Whenever I make one, I notice that I hope for one side to win. I will call you on Sunday, as always. Give my love to Peter, and tell Jonas that I have found the book about volcanoes that he wanted. Yours, Martin

Most people who learn to play chess begin with the moves of the pieces, go on to a few openings, and then stop getting better. The reason is that they play too many games and look at too few. A game that you lost contains everything that you need to know: there is a position, often long before the end, in which you did not see what your opponent saw. Find that position. Set it up on the board, and do not turn the page until you can say why the move was wrong and what you should have done. Ten games studied in this way will teach you more than a hundred played in a hurry. It is also less pleasant, which is why so few do it.

The committee met on 3 March and agreed on the following points. First, the hall will be closed from 1 June to 15 August while the roof is repaired; the estimated cost is 48,500 euros, of which the council pays two thirds. Second, the summer concert will be moved to the school yard, weather permitting. Third, membership fees will rise from 24 to 30 euros per year, and remain free for children under fourteen. Mrs. Okafor asked whether the new fee could be paid in two instalments. The treasurer saw no difficulty. The next meeting will be held on 7 April at 7 p.m.

Question: A train leaves at 9:40 and arrives at 13:05. How long does the journey take, and what is its average speed if the distance is 287 kilometres?
Answer: From 9:40 to 13:05 there are 3 hours and 25 minutes, which is about 3.417 hours. The average speed is the distance divided by the time: 287 / 3.417 = 84 kilometres per hour.

Question: What is the difference between weather and climate?
Answer: Weather is what happens in the air at one place at one time: rain this afternoon, a storm tomorrow. Climate is the pattern of the weather over many years. If you ask what to wear today, you ask about the weather; if you ask what clothes to own, you ask about the climate.

Question: Can you explain recursion to a beginner?
Answer: Sure! A function is recursive if it calls itself on a smaller problem. For example, to compute the factorial of 5, you can multiply 5 by the factorial of 4. Each call waits for the next one to finish, until the smallest case, whose answer is known, is reached. Two things are important: there must be a case that stops, and every call must get closer to it.

Philosophers have disagreed about property since the earliest records of their trade. One tradition holds that whoever mixes his labour with a thing that belonged to nobody has made it his own, provided that enough, and as good, is left for others. A second tradition answers that nothing belongs to a man before there is a law to say so, and that the law must therefore be judged by what it does for those who live under it. A third, which became influential in the nineteenth century, claimed that large property is a kind of power over other people, and that a society of equals cannot tolerate it any more than it tolerates kings. Each of these views has been defended by careful writers and by demagogues; each has been used to justify both reform and cruelty. What they share is the conviction that ownership needs a reason, which is itself a rather modern idea.

The movement was never united. Some of its members believed in patient education and in cooperatives, where workers would own their tools and elect their foremen; others expected a general strike to bring down the state within a week. At the congress of 1872 the quarrel became a split. The majority followed the general council, which wanted disciplined parties that would compete in elections. The minority objected that any party which captured a government would soon be captured by it. "Take the most radical of revolutionaries," one of their speakers wrote, "and place him upon the throne; within a year he will have become worse than the old ruler." His opponents replied that good intentions without organisation had never changed anything. Historians still dispute which of the two predictions was the better one, although both turned out to be partly true.

In biology, the word "species" is used in at least three senses. The oldest refers to appearance: animals that look alike belong together. The second, proposed in the 1940s, refers to breeding: two populations are different species if they do not interbreed under natural conditions, or if their offspring are infertile. The third refers to descent, and counts every branch of the tree that has its own history. The three definitions agree about horses and oaks, and they disagree about wolves, ring-shaped populations of gulls, bacteria, and most plants that form hybrids. This does not mean that species are unreal, any more than the existence of dusk means that there is no difference between night and day.

Iron is the most common element on Earth by mass, and forms much of the planet's outer and inner core. It melts at 1,538 degrees Celsius. Pure iron is soft; small amounts of carbon, between 0.002 and 2.1 per cent, make it up to a thousand times harder and turn it into steel. People first used iron from meteorites, which they hammered cold. The smelting of ore began in Anatolia before 1200 BC, probably by accident, in furnaces that were built for copper. It spread slowly, because the new metal rusted and was no better than good bronze until smiths learned to carburise and quench it. By 500 BC it was cheap enough for ploughs, and a farmer with an iron plough could break heavy soil that had been left to the forest.

The council voted on Tuesday evening to close the bridge to lorries from the first of March. Engineers who inspected the structure last autumn found cracks in four of its twelve main girders, and said that the remaining ones were carrying more than they had been designed for. "We are not talking about a danger for this week or this month," said Helen Okafor, who led the inspection. "We are talking about a bridge that was built for carts and has been asked to carry forty tonnes." Shopkeepers on the eastern side fear that deliveries will take an hour longer. The mayor promised a temporary ferry, but could not say what it would cost or who would pay for it. A decision about repairs, which are estimated at 11.4 million, is expected in June; until then the only heavy vehicles allowed to cross will be buses and fire engines.

Dear Margaret,

Thank you for your letter, and for the seeds, which came through without a scratch. I have put half of them in the cold frame and kept the rest for April in case the frost comes back, as it did the year you were here. You asked about father. He is better than he admits. He walks to the gate every morning and tells the dog about the government. The doctor wants him to eat less salt, and he has agreed on the condition that nobody looks into his coat pockets.

I don't think I will sell the house after all. I know what I said at Christmas, and you were kind not to argue with me then; but when the man came to measure the rooms he kept saying "potential", and I found that I could not stand it. It isn't potential, it's where we learned to read. Perhaps I'm being foolish. Write and tell me so if you think it, only don't tell me in front of John.

Your loving sister,
Anna

Why is the sky blue? Sunlight looks white, but it contains all colours. When it passes through the air, the molecules scatter short wavelengths much more strongly than long ones: blue light is scattered about four times as much as red. So when you look away from the sun, most of the light that reaches your eye has been scattered at least once, and it is mostly blue. At sunset the light has to travel through far more air; nearly all of the blue has been removed on the way, and what is left is orange and red. You might ask why the sky is not violet, since violet has an even shorter wavelength. There are two reasons. The sun emits less violet than blue, and our eyes are less sensitive to it.

To make a simple soup for four people, peel two onions and slice them thinly. Melt a large spoonful of butter in a heavy pot over a low flame, add the onions with a pinch of salt, and let them soften for about fifteen minutes without letting them brown. Meanwhile wash 500 g of potatoes and 200 g of leeks, and cut them into small pieces. Add them to the pot, stir, and pour in one litre of stock. Bring it to the boil, then turn the heat down and simmer until the potatoes fall apart, which takes roughly twenty-five minutes. Blend it or don't, as you like. Before serving, stir in a little cream, some pepper, and a handful of chopped parsley. It keeps for three days and tastes better on the second.
The law of large numbers is often misunderstood by gamblers. It says that the average of many independent trials comes close to the expected value. It does not say that a run of losses must be followed by a run of wins. If a fair coin has shown heads ten times, the chance of heads on the next throw is still one half; the coin has no memory, and the surplus of ten heads is not repaid but diluted. After a million more throws it will hardly matter, because ten is a very small part of a million. People who bet on what is "due" confuse the two ideas, and casinos do not correct them.

User: Can you explain the difference between a virus and a bacterium in simple words?
Assistant: Of course! A bacterium is a living cell. It eats, grows and divides on its own, and many bacteria are harmless or even useful, such as those in your gut or in yoghurt. A virus is much smaller and is not a cell at all: it is a piece of genetic material in a shell of protein. It can't reproduce by itself, so it enters a living cell and makes that cell build copies of it. Here is why the difference matters:

1. Antibiotics attack parts of bacteria, such as the cell wall, which viruses don't have. They do nothing against a cold or the flu.
2. Vaccines can protect you against many viruses and some bacteria.
3. Most viral infections end by themselves, because your immune system learns to recognise the virus.

User: So should I ask my doctor for antibiotics when I have a fever?
Assistant: A fever alone isn't a reason. It only shows that your body is fighting something. Your doctor may do a test to find out whether bacteria are the cause, and only then would antibiotics help. If the fever is above 39.5 degrees, lasts longer than three days, or comes with a stiff neck or trouble breathing, please see a doctor soon.

It was the captain's opinion, which he expressed at every meal, that islands ought to stay where the chart had put them. "There was land here in '47," he said, and struck the table so that the spoons jumped. "I saw it. Palm trees. A goat." The mate, who had seen a great many things in his life and had been paid for few of them, went on buttering his bread. He did not believe in the goat. Outside, the sea was perfectly flat and of the colour of pewter, and the sails hung like washing. They had drifted for nine days. The water in the second cask had begun to smell, and the boy had given up asking when they would arrive; he sat in the bows with his chin on his knees, watching the place where the sky came down. On the tenth morning he stood up very slowly and, without turning round, held out his arm. Nobody spoke. It was low, and dark, and it had no palm trees on it at all; but as they came nearer they saw that something small and white was moving along the beach, and that it had horns.

In economics, inflation is a general increase in the prices of goods and services. When the general price level rises, each unit of currency buys less; consequently, inflation corresponds to a reduction in the purchasing power of money. Economists usually measure it by the yearly change of a consumer price index. Moderate inflation is thought to result from fluctuations in real demand, or from changes in available supplies, as during scarcities, while very high inflation is nearly always caused by an excessive growth of the money supply. Its effects are mixed. Debtors gain and savers lose; wages may lag behind prices; shops spend effort on changing their labels; and uncertainty about the future discourages investment. On the other hand, a little inflation allows relative prices to adjust without anyone's wage being cut, and it gives a central bank room to lower real interest rates in a recession. For these reasons most central banks aim at a low and stable rate, commonly two per cent, rather than at zero.

Early life. Born in the harbour town of Vesterby in 1861, the third of seven children of a ship's carpenter, she attended the parish school until the age of twelve, and afterwards taught herself algebra from a book that a lodger had left behind. In 1879 she moved to the capital, where she worked as a seamstress by day and attended the public lectures of the university, to which women were not yet admitted, by night. Her first paper, on the tides of enclosed seas, appeared in 1886 under her brother's name. It was praised by several professors, one of whom invited the author to dinner; the misunderstanding that followed was described by both parties, with some variation, in their memoirs. She became the first woman to hold a chair in the country (1904), declined the Order of the Crown twice, and died in 1932. A crater on the Moon and a small ferry are named after her.

The wind went over the barley, and the barley bent its head;
"I was not always golden, I was green once," it said.
"I have stood in the rain and the thunder, I have listened all night to the owl,
And the mole has gone under my feet like a monk in a soft black cowl."

A good teacher does three things that a book cannot do. She notices what you have not understood, often before you notice it yourself. She chooses the next question so that it is difficult, but not too difficult. And she expects something of you. The first two can be imitated to some degree by a machine, and there are programs that do so rather well for arithmetic and for vocabulary; whether the third can be imitated is less clear. Pupils work harder for people whose opinion they value. That may be why, in most of the studies, software improves results when a teacher uses it in class, and makes hardly any difference when it is given to children to use alone at home. We should therefore be careful with the claim that technology will "replace" schools. It has been made about radio, film, television and the video disc, each time with confidence, and each time schools have absorbed the new thing and gone on much as before.
# Convert a model, and prove that it still computes the same

You need `ferry` on the PATH ([installing](../installing.md)) and a checkpoint. The commands use the sample of the
repository, so that they work as they stand from its root; put a folder of yours, or the name of a model that
`hf download` has fetched, in its place.

## 1. Look at the checkpoint

```sh
ferry inspect testdata/trained
```
```text
testdata/trained: checkpoint
55 tensors, 2.25 MB
```

Every tensor has its dtype, its shape and its bytes. A dry run shows what becomes of each, and writes nothing:

```sh
ferry convert testdata/trained -o sample.bundle --dtype f32 --dry-run
```
```text
tensors: 55 mapped, 0 split, 1 tied, 0 dropped
dry run: nothing was written
```

A key that Ferry does not know stops the conversion. Nothing is left out silently.

## 2. Convert it

The file `golden.safetensors` has prompts, and what transformers computes for them. A bundle takes it along, so that
it can be checked where it arrives. One command makes it for your model:
`python -m ferry.reference MODEL -o golden.safetensors` ([verifying](../verifying.md#making-a-reference)).

```sh
ferry convert testdata/trained -o sample.bundle --dtype f32 --reference testdata/trained/golden.safetensors
```
```text
model: 'qwen3_5_text' (4 layers, hidden 128, vocabulary 2048)
```

## 3. Let it write

```sh
ferry run sample.bundle --prompt "And it came to pass" --max-new 30 --quiet
```
```text
, when the people saw that the people had heard the voice of the people, that they were not able to go into the land of Egypt, but
```

## 4. Prove it

```sh
ferry verify sample.bundle --checkpoint testdata/trained --report parity.html
```
```text
weights: 56 of 56 derived again from the checkpoint, bit for bit (4.49 MB)
programs: 1 of 1 made again from the checkpoint, byte for byte
parity
  proved: every stored weight is, bit for bit, what the checkpoint gives
  proved: every program is, byte for byte, what this version of Ferry makes of the checkpoint
  proved: the checkpoint's model in f32 computes what the reference says
```

The exit code is 0 at parity, 1 where something differs, and 7 where nothing differs but nothing is proved. The page
`parity.html` shows the errors by layer and position, each beside the noise that f32 has on this model.

## 5. Check it where it arrives

```sh
ferry check sample.bundle
```
```text
sample.bundle: intact: 8 files, 5.76 MB
```

`check` hashes every byte and validates every file. To know who made the bundle too, [sign it](../signing.md).

# Verification

`ferry verify BUNDLE` executes a bundle on prompts whose outputs the original implementation computed, and compares everything that the reference holds: logits of every position, hidden states of every layer, caches and recurrent states, and the greedy continuation. Exit code 0 is parity, 1 is not, 7 is [not proved](#quantised-weights), 2 to 6 are errors. All digests of the bundle are checked first.

What runs is what came out of the bundle: the runner links neither the converters nor the graph (`tests/layers.cmake`).

    ferry verify BUNDLE --reference golden.safetensors
    ferry verify BUNDLE --reference golden.h5
    ferry verify BUNDLE                      # with the reference embedded by convert --reference
    ferry verify BUNDLE --against OTHER_BUNDLE
    ferry verify STATIC_BUNDLE --mode lookahead
    ferry verify BUNDLE --tolerance 1e-5 --json

## Making a reference

One command makes a reference of a model of any family, from what transformers computes of it on the processor. It is part of
the [Python package](python.md) (`pip install 'ferry-weights[reference]'`), and runs from a clone too, with
`PYTHONPATH=python` and torch, transformers 5.23 and safetensors installed:

    python -m ferry.reference Qwen/Qwen3-0.6B -o golden.safetensors
    python -m ferry.reference MODEL -o golden.safetensors --prompts prompts.txt --max-new 32
    python -m ferry.reference SMOLVLM -o golden.safetensors --image cat.jpg
    ferry convert MODEL -o BUNDLE --reference golden.safetensors

`prompts.txt` has a text in each line, or a JSON object with `text`, `tokens`, `messages` or `image`; without it there are three
built-in prompts. The file has all tensors of the table below that the model has: logits in f32 and in f64, hidden states,
caches and the greedy continuation. The model in f64 is executed layer by layer. Of SmolLM2-135M, two prompts with 24 tokens each
take 15 s and 2.2 GB, torch included. The promise `reference` of [the conformance suite](../tests/conformance/README.md) holds
the command to a model of every family.

## Reference files

A safetensors or HDF5 file with one or more prompts. Names are `PROMPT.TENSOR`, or in HDF5 the paths `PROMPT/TENSOR`; without a prefix the file holds one prompt. T is the number of tokens, V the vocabulary, E the hidden size, G the length of the continuation.

| tensor | shape | |
|---|---|---|
| `input_ids` | i64 [1,T] | required, one per prompt |
| `logits` | f32 [1,T,V] | required |
| `logits_f64` | f64 [1,T,V] | the same computed in f64; the report says whose logits are nearer to it |
| `hidden_states.N` | f32 [1,T,E] | input of layer 0 for N = 0, else the output of layer N-1; the last one is after the final norm |
| `last_layer_prenorm` | f32 [1,T,E] | the output of the last layer before the final norm |
| `cache.N.key`, `cache.N.value` | f32 [1,heads,T,dim] | keys (after RoPE) and values of layer N after the prompt |
| `cache.N.conv_state` | f32 [1,channels,kernel] | last inputs of the convolution of a linear-attention layer |
| `cache.N.recurrent_state` | f32 [1,heads,key,value] | its recurrent state |
| `greedy_ids` | i64 [G] | the continuation by largest logit, without the prompt |
| `greedy_logits` | f32 [G,V] | the logits that each of them was chosen from |

Floating-point tensors may also be f16, bf16 or f64; values must be finite. Every tensor that the bundle has a counterpart for is compared; names without one (`logits_native_bfloat16`, ...) are listed as `not_compared`.

Of models with experts a reference may also hold `router_logits.N`, f32 [1,T,experts], the scores of layer N before the softmax, and `router_experts.N`, i64 [1,T,experts per token], the experts that each token passed through.

### Images

Prompts of [vision-language models](vision_language.md) have, beside these:

| tensor | shape | |
|---|---|---|
| `pixel_values` | f32 [tiles,3,S,S] or [1,tiles,3,S,S] | what the processor made of the images, all tiles in order; in the second form, tiles of zeros are padding and left out |
| `vision_hidden_states.N` | f32 [tiles,rows,width] | input of layer N of the vision tower, with positions |
| `vision_last_hidden_state` | f32 [tiles,rows,width] | the output of the tower, behind its last norm if it has one, with the class token if it has one |
| `image_features` | f32 [tiles,N,E] | the output of the connector: the rows that take the place of placeholders |

`hidden_states.0` has the rows of images in it. The tower is executed on `pixel_values`, tile by tile, and the decoder goes on with what it gives; a prompt with `image_features` alone is executed with these. A bundle in half precision, and `--against`, need `image_features` too.

`input_ids` has as many placeholders as the tiles have rows; anything else is refused (3). The placeholder is `image_token_id` of the manifest. Where that is null it is the only token that occurs as often as there are rows; if two do, the reference is refused.

A prompt with images is skipped, and said to be, where the bundle takes none; if every prompt is, the exit code is 4. A name like `vision_position_ids` has no counterpart: positions are constants of the program.

## Against the checkpoint, and a reference

    ferry verify BUNDLE --checkpoint SRC --reference golden.safetensors

is the command for CI: it proves a bundle in any precision, in four steps.

1. **Weights.** The keys of SRC are mapped again, and every weight of the bundle is derived from its source tensors and compared bit for bit, in the dtype that the bundle stores. This sees what logits cannot, such as the embedding of a token that no prompt uses, or the lowest bit of one value. Weights that differ are listed with their source keys and the first differing byte.
2. **Programs.** The programs that this version of Ferry makes of SRC, for the options that the manifest states, are compared with those of the bundle byte for byte. This sees what half precision hides, such as another `rms_norm_eps`. A difference is named by its

namespace is `ferry::FOLDER` (core: `ferry`;
program files: `ferry::pte`, `ferry::ptd`, `ferry::xnnpack`).

| folder | what is in it | may use |
|---|---|---|
| `core/` | Result, dtypes, files, threads, JSON, UTF-8, SHA-256, strided pieces, `TensorSource` | nothing |
| `formats/` | files: safetensors, PyTorch, HDF5; programs (`pte`, `ptd`), [blobs of delegates](xnnpack_blob.md) (`xnnpack`) | core |
| `text/` | tokenizers, chat templates | core |
| `media/` | image files, resampling, tiles, pixel values | core |
| `kernels/` | what computes: kernels and the values that they work on; nothing of program files | core |
| `signing/` | [signatures](signing.md) of models and statements, digests of models | core |
| `graph/` | operators, graph, recipes, passes, memory plan, lowering | core, formats |
| `converters/` | configurations, keys, blocks, families; adapters (LoRA) and quantised checkpoints | core, graph |
| `packer/` | manifest and bundle reader (`ferry_bundle`); plan and writer of bundles (`ferry_packer`) | core, formats, graph |
| `report/` | pages, statistics of a run and their thresholds | core, packer's manifest |
| `dialects/` | GGUF and Keras: files, names, metadata, tokenizers, read and written | core, formats, graph, converters, text |
| `checkpoint/` | opens a checkpoint or bundle of any format | core, formats, converters, packer, dialects |
| `runner/` | executes methods; decoders of stateful and static programs, sampler | core, formats, kernels, bundle reader |
| `prompt/` | prompts with images: files to rows and token ids | core, formats, text, media, runner, bundle reader |
| `plan/` | options of a conversion; a checkpoint becomes the plan of a bundle | core, graph, converters, packer, text, checkpoint |
| `proof/` | references, noise, bounds, executions in f32 and f64, weights, programs, attestations, calibration | all above but report, media's files |
| `conversion/` | a bundle, or files for other tools, in one function | all above |
| `listing/` | what `inspect` and `check` know of a file | core, formats, packer, checkpoint |
| `audit/` | where every byte of an artifact goes, budgets, comparisons | core, formats, packer, dialects, checkpoint |
| `batch/` | plans, attempts, leases, states, reports and scripts of batches | core; `formats/known_files.h`, `packer/manifest.h` |
| `patch/` | [updates](updates.md): what differs between two folders as one file, and the new folder made of it | core; safetensors headers, packer's manifest and stage |
| `library/` | implements the public headers, `include/ferry/` | all above |
| `cli/` | verbs; the only place that prints | all but library |
| `python/` | the wheel: `native/` is the extension module, `ferry/` the package | `include/ferry/` alone |

The link lists in the CMakeLists of folders are the rule, and a test checks the includes (`tests/layers.cmake`). Two absences
matter: the runner sees neither graph nor converters, because parity is honest only if everything that runs
came out of the bundle; converters see no file format, because they know only `TensorSource`.
`cmake/install.cmake` installs the product without `cli` as one archive, and the headers of `include/ferry`, which `library/` implements
([library](library.md)).

## Text

`text/tokenizer` returns the ids and texts that Hugging Face's libraries return, string by string
([tokenizers](tokenizers.md)). Every source of a tokenizer becomes a `TokenizerDocument`, the contents of a
`tokenizer.json`: this file is parsed, SentencePiece models and tiktoken ranks are converted. A `Tokenizer`
is made of the document: added tokens, normalizer, pre-tokenizer, model, post-processor, decoder. The
word-splitting regexes of known families are code (`word_rules.cc`), held to PCRE2 by a test; others are
compiled by PCRE2.

Logits that are NaN or infinite are an error, but for -inf beside others, which is a token of probability 0.
Sampling applies temperature, then top k, then top p, and draws with xoshiro256**: a seed fixes the
tokens whatever the number of threads.

## Decisions

**Errors.** `Result<T>` everywhere; the code of an error is the exit code of the program. Library
exceptions stop at the file that wraps the library. A signal that asks to stop sets a flag
(`core/interrupt.h`); what copies weights, hashes files and executes programs polls it and returns an error,
so that destructors clean up.

**HDF5.** libhdf5 crashes on small damaged files, and can be told by a file to read others. So a
child without rights (seccomp: no open, no exec, no socket; limits on memory and processor time) walks
the file and describes it. The child is `ferry`, started anew, because the fork of a program with threads
may find a lock that is held for ever. In programs that embed the library the child is a fork. The parent
checks the description as untrusted input, reads the tensors by offset and undoes the filters itself. The rules are in `formats/hdf5/hdf5.h`.

**Dtypes.** `--dtype` settles matrices (linear and embedding weights). Everything else (norms, biases,
convolutions, states, attention) is f32 whatever the checkpoint holds: it is a thousandth of the bytes,
and it keeps the residual stream exact. The official `aten::linear.out` wants equal dtypes, so a bf16
program casts the activation to bf16 before a linear and the result back to f32 after it.

**What a runtime must link.** `aten::linear.out` is in ExecuTorch's optimized kernels only, the `llama::*`
operators in its LLM custom operators, `quantized_decomposed::*` (8- and 16-bit inputs and outputs) in its
quantized kernels; all others are in the portable kernels. A runtime that links the portable library
alone finds no `linear.out` and refuses our programs when it loads them.

**Linear has no bias argument.** Biases are an `aten::add.out` in f32: official kernels differ in whether
they take one.

**State.** KV caches are masked by causality: `llama::custom_sdpa` reads positions up to the current one
only. A sliding window slices the cache to the window first, because a masked kernel reads all the keys
that it is given. DeltaNet states pass through `where(position == 0, 0, state)`, not through a product
with zero: NaN times zero is NaN. So no program depends on what planned memory held before, which
`--poison` tests. Final states are written straight into their buffers.

**Experts.** A sparse layer is one node of the graph (`graph/experts.h`) and a loop of the program, of
official operators only: the experts that any token of the call chose are found (`nonzero`), and for each
of them its three matrices are selected from the stacked weights (experts, rows, columns), its tokens
gathered, passed through, weighted and added to the result (`index_put_`). So the work is that of the
chosen experts, a matrix is read once however many tokens chose it, and planned memory holds one matrix
of one expert and one row per token, whatever their number (Qwen3-30B-A3B, 512 tokens a call: 35 MB of
activations in all). Gathering matrices per

# Security

Checkpoints, programs and bundles are untrusted input. A file that is malformed or hostile costs one line
on stderr and an exit code (3 bad input, 4 unsupported, 5 input or output failed); it never costs a crash,
a hang, memory without bound, a half-written bundle, or code run on its behalf.

## What is never done

- **No code from a file runs.** Pickles are read as data by an interpreter that has no call at all: names
  outside a short list, and opcodes that plain state dicts do not have, are errors. There is no Python,
  no plugin is loaded, templates in tokenizer files are copied and not run by `convert`;
  `--chat` renders them in an interpreter of its own that sees the chat, the special tokens and the date, and
  bounds size (1 MiB), nesting, work and output (16 MiB).
- **No file is opened because another file says so**, but for the shards that an index names (plain names in
  the directory of the index) and the further files of a split GGUF checkpoint, whose names follow from that of the first. Symbolic links out of a checkpoint's directory are refused, but for those
  of the Hugging Face cache (`../../blobs/NAME`), one step. So it is with the files of an adapter, and with those in the
  folders of modules of sentence-transformers, which are no links themselves. FIFOs, devices and sockets are refused before
  they are opened.
- **A path is opened once.** The directory of a checkpoint or a bundle is opened once, and its files are opened
  relative to that descriptor (`openat`, `O_NOFOLLOW`). A symbolic link in a checkpoint is read once; if the rule
  above allows its target, the target itself is opened, again with `O_NOFOLLOW`. Kind and size are those of the
  descriptor (`fstat`). What is checked, converted and copied is read from that descriptor. So a file, link or
  directory that another process puts in place meanwhile is refused or not seen. The path that the user gives
  may be a symbolic link.
- **No network**, at any time. Ferry links the archive of libhdf5 where there is one (`cmake/hdf5_archive.cmake`), because
  Debian's shared library loads libcurl and about 30 other libraries. A security update of libhdf5 then
  needs a new build of Ferry.
- **Checkpoints are not mapped into memory**: a mapped file that shrinks raises a signal. They are read with
  `pread`; size and both times of change (mtime, and ctime, which no tool can set back) are compared after
  every read and once more before a bundle is published. Not all files of a large checkpoint are open at a
  time; one that is opened again must be the same file (device and inode) in the same state. Bundles and
  programs are mapped; each file of a bundle is opened once, and what was hashed is what is mapped and read.
  A signal is caught and becomes exit code 5.
- **Memory has bounds**: too little of it is one line and exit code 5. So is a bundle whose programs together
  plan more than the system has available, or more than `--memory` ([command line](command_line.md#memory-of-programs)).
- **No name from a file is printed as it is**: control characters, quotes and what is not valid UTF-8 are
  escaped, long names are cut. No path is built from a tensor's name.

## What is accepted, and where that differs from others

Each rule is numbered where it is implemented (`formats/*/header.h`, `formats/torch/*.h`). "Stricter" and
"looser" compare with the library that defines the format; recorded verdicts of these libraries are
replayed against ours by `tests/end_to_end/hostile_files_test.cc`, and every difference in them is one of these rules.

### safetensors (reference: safetensors 0.8)

| rule | | what | why |
|---|---|---|---|
| S1 | stricter | a name that occurs twice is refused, also where both agree | readers that keep the first and readers that keep the last see different tensors |
| S2 | stricter | a tensor has the fields dtype, shape, data_offsets and no other | what is not understood may have changed the meaning |
| S3 | stricter | dimensions a

# Running

`ferry run BUNDLE` with a prompt generates text or tokens. They are on stdout, each as soon as it is known; all that is
said about them is on stderr.
How static bundles decode is in [static programs](static_programs.md#running). In place of a bundle a
[GGUF file](gguf.md#verified-and-run) may be given, with `--config FILE` where its metadata do not tell all.

## Prompts

One of these options gives the prompt:

| option | prompt |
|---|---|
| `--prompt TEXT` | text, for the bundle's tokenizer; `-` reads all of stdin |
| `--prompt-file FILE` | the text of a file |
| `--prompts FILE` | [many prompts](#many-prompts), one in each line; `-` reads stdin |
| `--chat TEXT` | one message of a user, for the bundle's chat template; `-` reads all of stdin |
| `--messages FILE` | a chat of any number of turns, for the template; `-` reads all of stdin |
| `--tokens N,N,...` | token ids |
| `--interactive` | [a chat](#chats) on stdin |

The FILE of `--messages` is JSON as `tokenize --chat` and [`preprocess --messages`](images.md#prompts) take it:

    {"messages": [{"role": "system", "content": "Be brief."},
                  {"role": "user", "content": "What is 2+2?"}], "add_generation_prompt": true}

As there, the prompt for an answer is written only with `add_generation_prompt`. Further members are further
variables of the template, such as `tools`. A list of messages alone, `[{"role": ...}, ...]`, stands for such an object
with `add_generation_prompt`.

Texts of options are taken as they are: `\n` is a backslash and an n (in bash, `$'a\nb'` has a line end).
Of texts from stdin and of `--prompt-file` the line end behind the last line is left out; they have at most 16 MiB.
`--system TEXT` is a system message before that of `--chat`, or before the first one of `--interactive`.

`--image FILE` (several, in order) belongs to any prompt of text, for a bundle with a `vision_encoder`. In
`--messages` each image is an item `{"type": "image"}`. Items that are no text are refused (2) for other bundles.

## Choosing tokens

Of the logits before a token the answer's next token is chosen in this order, which is that of `generate()` of
transformers:

| option | effect | default |
|---|---|---|
| `--greedy` | the largest logit is taken, and [the model's own settings](#settings-of-the-model) have no effect | |
| `--repetition-penalty X` | logits of tokens that are in the prompt or in the answer so far, special ones too, are divided by X where they are not negative, else multiplied by it; in f32, once for each token however often it is there | 1: none |
| `--temperature T` | logits are divided by T. 0: the largest is taken, and what follows has no effect | 0 |
| `--top-k K` | the K likeliest are left, and others that are as likely as the last of them | 0: all |
| `--top-p P` | of these, the fewest likeliest that have the probability P together | 1: all |
| `--min-p P` | of these, the ones that have at least P times the probability of the likeliest | 0: all |

The three options that leave tokens out have no effect at temperature 0, and a note says so.

One of the tokens that are left is drawn with `--seed N`. Without it a seed is drawn too, so that two runs differ;
`--stats` prints it, and `sampling` in the document of `--json` has it, so that the run can be repeated. The penalty looks at the whole sequence, as the
`RepetitionPenaltyLogitsProcessor` of transformers does (llama.cpp has a window of the last 64 tokens). Lookahead accepts a guess only if it is the
token that was chosen so from the logits before it: with every option its answer is that of `--mode kv`.

### Settings of the model

A bundle has the `generation_config.json` of its checkpoint (of loose programs, the one in the `--tokenizer` directory
counts). It is read as `generate()` of transformers 5.23 reads it, and each option above replaces one value of it:

| member | effect |
|---|---|
| `do_sample` | without it, or where it is false, answers are greedy whatever the next four say |
| `temperature`, `top_k`, `top_p`, `min_p` | defaults of the options; with `do_sample` and without `top_k` the 50 likeliest are left |
| `repetition_penalty` | the option's default, also of greedy answers |
| `max_new_tokens`, `max_length` | [the length](#end-of-the-answer) |
| `eos_token_id` | the end tokens; the manifest has them |
| `num_beams`, `no_repeat_ngram_size`, `min_length`, `min_new_tokens`, `suppress_tokens`, `begin_suppress_tokens`, `bad_words_ids`, `sequence_bias`, `guidance_scale`, `stop_strings`, `forced_bos_token_id`, `forced_eos_token_id` and others that change which tokens are chosen | refused by name (4) where they have an effect; `--greedy` runs without them |
| `typical_p`, `epsilon_cutoff`, `eta_cutoff`, `top_h`, and of GGUF files `mirostat`, `xtc_probability` | the same, where tokens are drawn |
| all others, such as `num_return_sequences`, `use_cache` | not read |

A GGUF file states such settings in `general.sampling.*`; where it has one of `temp`, `top_k`,

#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/interrupt.h"

namespace ferry {
namespace {

// A decode step makes hundreds of short jobs with short pauses between them. Spinning over a pause
// is cheaper than a sleep and a wake-up, which cost about as much as a job.
constexpr std::chrono::microseconds kSpin(50);
constexpr size_t kCacheLine = 64;
constexpr uint64_t kMaxJob = UINT32_MAX;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins while `value` equals `old`, at most kSpin, then sleeps until it differs.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old, bool spin) {
  if (spin) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

// A job is done when its items are done; a thread that slept through the job is not waited for.
// That is safe because a thread looks at `body`, `count` and the like only after it has claimed an
// item, and the job cannot end, nor the next job begin, before that item is done.
struct ThreadPool::Impl {
  // The high half is the number of the job, so that a claim cannot take an item of a later job. The
  // low half is the number of items that nobody has claimed yet.
  alignas(kCacheLine) std::atomic<uint64_t> ticket{0};
  alignas(kCacheLine) std::atomic<uint32_t> unfinished{0};
  alignas(kCacheLine) std::atomic<uint32_t> signal{0};  // changes with every job
  std::atomic<bool> stop{false};
  alignas(kCacheLine) const std::function<void(size_t)>* body = nullptr;
  const std::atomic<int>* interrupt = nullptr;  // see InterruptScope
  size_t begin = 0;
  uint32_t count = 0;
  uint64_t job = 0;
  bool spin = false;
  std::vector<std::thread> workers;
  // Once an item of the current job has thrown, the remaining items are counted but not run.
  std::atomic<bool> failed{false};
  std::mutex failure_mutex;
  std::exception_ptr failure;  // the first exception, guarded by failure_mutex

  ~Impl() { end_workers(); }

  // Returns true if all `wanted` threads run. If the system refuses one, all of them are ended.
  bool start_workers(size_t wanted) {
    try {
      workers.reserve(wanted);
      while (workers.size() < wanted) workers.emplace_back([this] { loop(); });
      return true;
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    end_workers();
    return false;
  }

  void end_workers() {
    stop.store(true, std::memory_order_release);
    announce();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
    stop.store(false, std::memory_order_relaxed);
  }

  void run_item(size_t index) noexcept {
    if (failed.load(std::memory_order_relaxed)) return;
    const InterruptScope scope(interrupt);
    try {
      (*body)(index);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }

  void work() {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & kMaxJob) != 0) {
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      run_item(begin + count - (seen & kMaxJob));
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  void loop() {
    uint32_t seen = 0;

"""Functions about files: what is in them, where bytes go, whether they are intact and signed."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable

from ferry import _native
from ferry._common import Path, Progress, path_of, paths_of
from ferry._results import Audit, Check, Inspection, Signature, SignatureCheck, build


def inspect(path: Path, *, threads: int = 0) -> Inspection:
    """Lists what is in a checkpoint, a program, a data file or a bundle. Reads headers only.

    >>> found = inspect("testdata/trained")
    >>> found.kind, len(found.tensors)
    ('checkpoint', 55)
    """
    return build(Inspection, _native.inspect(path_of(path), threads))


def audit(
    path: Path, *, digests: bool = False, progress: Progress | None = None, threads: int = 0
) -> Audit:
    """Accounts for every byte of an artifact. ``digests`` reads all bytes, to find equal tensors
    and values that fit fewer bits.

    >>> found = audit("testdata/trained")
    >>> found.totals.bytes == sum(file.bytes for file in found.files)
    True
    """
    document = json.loads(_native.audit_json(path_of(path), digests, progress, threads))
    return build(Audit, document, document=document)


def sign(
    path: Path,
    private_key: Path,
    *,
    passphrase_file: Path | None = None,
    certificate: Path | None = None,
    chain: Path | Iterable[Path] = (),
    signature: Path | None = None,
    ignore_paths: Path | Iterable[Path] = (),
    shard_bytes: int = 0,
    progress: Progress | None = None,
    threads: int = 0,
) -> Signature:
    """Signs a bundle, any other folder or a file, by OpenSSF Model Signing (docs/signing.md).

    ``private_key`` is a PEM file for P-256, P-384 or P-521, which its owner alone may read.
    """
    options = {
        "path": path_of(path),
        "private_key": path_of(private_key),
        "passphrase_file": path_of(passphrase_file),
        "certificate": path_of(certificate),
        "chain": paths_of(chain),
        "signature": path_of(signature),
        "ignore_paths": paths_of(ignore_paths),
        "shard_bytes": shard_bytes,
    }
    return build(Signature, _native.sign(options, progress, threads), path=path_of(path))


def check(
    path: Path,
    *,
    public_key: Path | None = None,
    root_certificates: Path | Iterable[Path] = (),
    at: int | None = None,
    signature: Path | None = None,
    ignore_unsigned_files: bool = False,
    progress: Progress | None = None,
    threads: int = 0,
) -> Check:
    """Hashes every byte of a bundle and validates all of its files, or reads every value of a
    checkpoint, a program or a data file. Damage is no error: it is in ``problems``.

    With ``public_key`` or ``root_certificates``, PEM files that the caller trusts, it checks the
    signature of any folder or file, and the bundle if it is one. ``at`` is the time at which
    certificates must be valid, in seconds since 1970.

    >>> check("sample.bundle").ok
    True
    """
    roots = paths_of(root_certificates)
    wants_signature = any((public_key, roots, signature, ignore_unsigned_files, at is not None))
    signed = None
    if wants_signature:
        options = {
            "path": path_of(path),
            "signature": path_of(signature),
            "public_key": path_of(public_key),
            "root_certificates": roots,
            "at": at,
            "ignore_unsigned_files": ignore_unsigned_files,
        }
        signed = build(SignatureCheck, _native.check_signature(options, progress, threads))
    if signed is not None and not _is_bundle(path):
        return Check(path_of(path), "", signed.files, signed.bytes, 0, (), signed)
    found = _native.check(path_of(path), progress, threads)
    return build(Check, found, path=path_of(path), signature=signed)


def _is_bundle(path: Path) -> bool:
    folder = pathlib.Path(path)
    return (folder / "manifest.json").is_file() and any(folder.glob("*.pte"))

"""Files of `ferry card`, read by the tools that they are for.

cyclonedx-python-lib validates bills of materials against the schema of CycloneDX 1.7, with formats; huggingface_hub reads model
cards and their metadata; in-toto-attestation reads the provenance; the digests are those that model-signing states. Cards of
checkpoints are random: licences, base models, data sets, tags, texts that mean something to YAML, Markdown and HTML.
"""
import hashlib
import json
import random
import string

import common
from common import Ferry, Wrong

LICENCES = ("apache-2.0", "mit", "llama3.1", "gemma", "other", "cc-by-nc-4.0", "bsd-3-clause")
NASTY = ("no", "1e3", "null", "a: b", "# c", "- d", "'", '"', "<b>x</b>", "[l](http://x.y)", "|", "é", "🙂", "{}", "&a", "*b", "%", "@c")


def front_matter(choose):
    import yaml
    text = lambda: choose.choice(NASTY + tuple("".join(choose.choices(string.printable.strip(), k=8)) for _ in range(4)))  # noqa: E731
    licence = choose.choice(LICENCES)
    data = dict(license=licence, tags=[text() for _ in range(choose.randint(0, 4))], language=["en"],
                base_model=choose.choice(("org/base", ["org/one", "org/two"])), datasets=["org/data", "other/data-2"])
    if licence == "other":
        data.update(license_name="our-licence", license_link="https://example.com/licence")
    return data, "---\n" + yaml.safe_dump(data, allow_unicode=True) + "---\n# Card\n"


def card(promise, number):
    choose = random.Random(f"{promise.seed}/{number}")
    folder = promise.folder / f"card-{number}"
    folder.mkdir()
    common.tiny_llama(folder / "checkpoint", seed=number)
    data, text = front_matter(choose)
    (folder / "checkpoint" / "README.md").write_text(text, encoding="utf-8")
    options = choose.choice(((), ("--dtype", "f32"), ("--quantize", "8da4w", "--quantize-embedding", "8")))
    bundle = common.convert(folder / "checkpoint", folder / "bundle", *options)
    Ferry("card", bundle, "--checkpoint", folder / "checkpoint", "-o", folder / "card").ends_with(0)
    check_bom(folder / "card" / "bom.cdx.json", bundle)
    check_readme(folder / "card" / "README.md", data)
    check_provenance(folder / "card" / "provenance.json", bundle)
    return data["license"]


def digests_of(bundle):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(bundle.iterdir())}


def check_bom(path, bundle):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    wrong = JsonStrictValidator(SchemaVersion.V1_7).validate_str(path.read_text())
    if wrong is not None:
        raise Wrong(f"the bill of materials is not valid: {wrong}")
    model = json.loads(path.read_text())["metadata"]["component"]
    stated = {part["name"]: part["hashes"][0]["content"] for part in model["components"] if part["type"] == "file"}
    found = digests_of(bundle)
    root = hashlib.sha256(b"".join(bytes.fromhex(found[name]) for name in sorted(found))).hexdigest()
    if stated != found or model["hashes"][0]["content"] != root:
        raise Wrong("the digests of the bill of materials are not those of the files")


def check_readme(path, data):
    import huggingface_hub
    read = huggingface_hub.ModelCard.load(path)
    for name in ("license", "license_name"):
        if data.get(name) is not None and getattr(read.data, name, None) != data[name]:
            raise Wrong(f"{name} of the model card is {getattr(read.data, name, None)!r}, not {data[name]!r}")
    if not set(data["tags"]) <= set(read.data.tags or []):
        raise Wrong(f"tags of the model card are {read.data.tags}, without some of {data['tags']}")
    if read.data.datasets != data["datasets"]:
        raise Wrong(f"data sets of the model card are {read.data.datasets}")
    if "<b>" in read.text or "](http://x.y)" in read.text.replace("\\]", ""):
        raise Wrong("a text became markup")


def check_provenance(path, bundle):
    from google.protobuf import json_format
    from i

#!/usr/bin/env bash
# Builds and runs the tests.
set -euo pipefail
cd "$(dirname "$0")"
./build.sh release

# Tests write thousands of small bundles and sync each of them. In /dev/shm, if that has enough space, they
# do not wait for a disk.
memory=/dev/shm
room=$(df --output=avail --block-size=1G "$memory" 2>/dev/null | tail -n 1 || true)
if [ -z "${TMPDIR:-}" ] && [ -w "$memory" ] && [ "${room:-0}" -ge 4 ]; then export TMPDIR=$memory; fi

# Some tests wait for other programs, so one more test runs than there are processors.
ctest --preset release --parallel "$(($(nproc) + 1))"

#include "packer/digests.h"

#include <algorithm>
#include <string_view>

#include "core/checked.h"
#include "core/derived_source.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kTag = "ferry-segments-v1\n";
constexpr uint64_t kChunk = uint64_t{1} << 16;

constexpr std::string_view kTreeTag = "ferry-source-file-v1\n";

}  // namespace

Result<FileDigest> digest_of_segments(
    uint64_t file_bytes, std::span<const HashedSegment> segments,
    const std::function<Status(uint64_t offset, std::span<std::byte> out)>& read) {
  Sha256 hash;
  update_text(hash, kTag);
  update_u64(hash, file_bytes);
  FastHash fast_gap;
  std::vector<std::byte> chunk, fast;  // `fast`: the XXH3 digest of each range
  const auto add_fast = [&](const FastDigest& digest) {
    fast.insert(fast.end(), digest.begin(), digest.end());
  };
  const auto hash_gap = [&](uint64_t from, uint64_t to) -> Status {
    if (from == to) return {};
    for (; from < to; from += chunk.size()) {
      chunk.resize(std::min(kChunk, to - from));
      FERRY_RETURN_IF_ERROR(read(from, chunk));
      hash.update(chunk);
      fast_gap.update(chunk);
    }
    add_fast(fast_gap.finish());
    return {};
  };
  uint64_t done = 0;
  for (const HashedSegment& segment : segments) {
    FERRY_RETURN_IF_ERROR(hash_gap(done, segment.offset));
    hash.update(segment.digest);
    add_fast(segment.fast);
    done = segment.offset + segment.bytes;
  }
  FERRY_RETURN_IF_ERROR(hash_gap(done, file_bytes));
  return FileDigest{hash.finish(), xxh3(fast)};
}

void update_u64(Sha256& hash, uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(value & 0xff);
    value >>= 8;
  }
  hash.update(bytes);
}

void update_text(Sha256& hash, std::string_view text) {
  hash.update(std::as_bytes(std::span(text.data(), text.size())));
}

TensorsByFile tensors_by_file(const Manifest& manifest) {
  TensorsByFile files;
  for (const ManifestTensor& tensor : manifest.tensors) files[tensor.file].push_back(&tensor);
  return files;
}

std::optional<std::vector<HashedSegment>> segments_of(
    std::span<const ManifestTensor* const> tensors, uint64_t file_bytes,
    std::vector<const ManifestTensor*>* owners) {
  std::vector<HashedSegment> segments;
  std::string_view sha256;  // of the previous tensor at a place
  uint64_t end = 0;
  for (const ManifestTensor* tensor : tensors) {
    if (!range_inside(tensor->offset, tensor->bytes, file_bytes)) return std::nullopt;
    if (tensor->bytes == 0) continue;
    const bool again = !segments.empty() && segments.back().offset == tensor->offset &&
                       segments.back().bytes == tensor->bytes;
    if (again) {
      if (tensor->sha256 != sha256) return std::nullopt;
      continue;
    }
    if (tensor->offset < end) return std::nullopt;
    segments.push_back({tensor->offset, tensor->bytes});
    sha256 = tensor->sha256;
    if (owners) owners->push_back(tensor);
    end = tensor->offset + t
)text";
}

}  // namespace ferry::proof
