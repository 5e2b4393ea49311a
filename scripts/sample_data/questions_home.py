"""Questions on home, food, health and living things.

A block is a family of questions. Its first line is `topic: values`. A line that begins with `+` starts an intent; the
indented lines below ask the same in other words.
"""

FAMILIES = """
travel: Lisbon; Prague; Kyoto; Edinburgh; Vienna; Istanbul; Marrakesh; Buenos Aires; Budapest; Singapore
+ Where can I find cheap but good food in {x}?
  What are some affordable places to eat in {x}?
  I am on a tight budget in {x}; which restaurants are worth it?
  How do people [visiting|travelling to] {x} eat well without spending a lot of money?
+ What is the best time of year to visit {x}?
  In which month should I [travel|go] to {x}?
  When is the weather [nicest|most pleasant] in {x}?
  Which season is ideal for a trip to {x}?
+ How do I get from the airport to the centre of {x}?
  What is the easiest way into downtown {x} after landing?
  Is there a train or bus between the airport and the middle of {x}?
  I land in {x} at noon; how do I reach the city centre?

travel: Canada; Japan; Brazil; Norway; Kenya; Australia; Vietnam; Iceland; Peru; Ireland
+ Do I need a visa to [visit|travel to] {x}?
  Are tourists allowed into {x} without a visa?
  Is it possible to enter {x} with only a passport?
  Must I apply for a visa before a trip to {x}?
+ How much does it cost to live in {x}?
  What does a single person spend each month in {x}?
  Is everyday life in {x} expensive?
  Is {x} a costly place to [settle in|call home]?
+ What is the traditional food of {x}?
  Which dishes is {x} known for?
  What do people in {x} usually [eat|have for dinner]?
  What is typical of the cuisine of {x}?

cooking: quinoa; brown rice; pearl barley; couscous; millet; bulgur; buckwheat; spelt; wild rice
+ How long [do I have to|should I] cook {x}?
  What is the right cooking time for {x}?
  After how many minutes on the stove [would|will] {x} be done?
  For how many minutes should {x} boil?
+ How can I store leftover {x}?
  What is the best way to keep cooked {x} fresh?
  I made too much {x}; how do I keep what is left?
  How should {x} from yesterday be stored?
+ How much protein is there in {x}?
  Is {x} a good source of protein?
  Can I get enough protein [by eating|from] {x}?
  How rich in protein is {x}?

cooking: cast-iron pan; roasting tin; steel wok; griddle; baking tray; pressure cooker; frying pan; waffle iron
+ How do I remove rust from a {x}?
  My {x} has rusted; how can I save it?
  What takes rust off a {x}?
  Is there a way to get rid of the rust on my {x}?
+ How do I clean burnt food off a {x}?
  What is the easiest way to get scorched bits off a {x}?
  Dinner burned onto my {x}; how do I scrub it off?
  How can I wash away black crusts that stick to my {x}?
+ Which {x} should I buy?
  What should I look for when [choosing|shopping for] a {x}?
  Can you recommend a good {x}?
  I want to buy a {x}; which one is worth the money?

baking: sourdough bread; banana bread; sponge cake; cheesecake; brioche; focaccia; shortbread; rye bread
+ Why is my {x} so dense?
  What makes {x} turn out heavy instead of light?
  My {x} comes out like a brick; what am I doing wrong?
  How can I get an airier texture in {x}?
+ Can I freeze {x}?
  Does {x} survive a few weeks in the freezer?
  Will {x} still taste good after [being frozen|thawing]?
  Is it all right to make {x} ahead and keep it frozen?
+ How can I make {x} without eggs?
  What can replace the eggs in {x}?
  Is there a recipe for {x} that needs no eggs?
  I am out of eggs; can I still bake {x}?

drinks: green tea; black coffee; mint tea; hot chocolate; espresso; iced tea; oat milk; ginger tea
+ Is it bad to drink {x} before going to bed?
  Will {x} in the evening keep me awake?
  Should I avoid {x} late at night?
  Does a cup of {x} at bedtime disturb sleep?
+ How do I make {x} at home?
  What is the proper way to prepare {x}?
  Can you explain the steps for a good cup of {x}?
  I would like to make my own {x}; how do I start?
+ Does {x} stain your teeth?
  Will my teeth [turn yellow|lose their colour] from {x}?
  Is {x} harmful to the look of teeth?
  Do people who drink a lot of {x} end up with darker teeth?

stains: red wine; coffee; ink; soy sauce; tomato sauce; gravy; beetroot juice; olive oil; blackcurrant jam
+ How do I get {x} out of a carpet?
  Somebody spilled {x} on my rug; what now?
  What removes {x} from a carpet?
  Is there a trick for cleaning {x} off a woollen rug?
+ How do I wash {x} out of a white shirt?
  My favourite white shirt has {x} on it; can it be saved?
  What takes {x} stains out of white cotton?
  Can a shirt with {x} on it ever be white again?
+ Why is {x} so hard to remove from fabric?
  What makes {x} cling to cloth?
  What is it about {x} that makes its stains so stubborn?
  How come {x} leaves marks that will not wash out?

plants: orchid; peace lily; geranium; lemon tree; rubber plant; aloe; fern; bonsai; cactus
+ Why are the leaves of my {x} turning yellow?
  What causes yellow leaves on a {x}?
  My {x} is losing its green colour; what is wrong with it?
  The leaves of my {x} look pale and yellow; how do I fix that?
+ How often should I water a {x}?
  How much water does a {x} need?
  How many times a week should a {x} be watered?
  What is a good watering schedule for a {x}?
+ How do I grow a new {x} from a cutting?
  What is the best way to propagate a {x}?
  Can I multiply my {x} by taking cuttings?
  I want a second {x} from the one I have; how is that done?

garden: tomatoes; carrots; garlic; strawberries; potatoes; lettuce; pumpkins; onions; peas
+ When should I plant {x}?
  What is the right month to put {x} in the ground?
  In which weeks of the year do I plant {x}?
  At what time of year do gardeners sow or set {x}?
+ How do I keep slugs away from my {x}?
  Something slimy is eating my {x}; how do I stop slugs?
  What protects {x} against slugs and snails?
  Which natural ways are there to stop slugs from ruining {x}?
+ Can I grow {x} on a balcony?
  Is it possible to raise {x} in pots?
  I have no garden; will {x} do well in containers?
  Are pots on a small balcony good enough for {x}?

pets: kitten; puppy; rabbit; parrot; guinea pig; ferret; hamster; hedgehog; goat
+ How do I stop my {x} from biting?
  My {x} nips at my hands; how can I teach it not to?
  What is the best way to train a {x} not to bite?
  Why won't my {x} quit biting, and what helps?
+ What should I feed a {x}?
  Which foods are healthy for a {x}?
  What does a good diet for a {x} look like?
  I have just brought a {x} home; what does it eat?
+ Can I leave my {x} alone for a weekend?
  Is it all right for a {x} to be on its own for two days?
  How long can a {x} stay home without anyone around?
  Will a {x} be fine by itself from Friday to Sunday?

animals: owls; octopuses; whales; bats; penguins; hedgehogs; crocodiles; swifts; seahorses
+ How do {x} sleep?
  What does sleep look like for {x}?
  In what way do {x} rest?
  What do we know about the sleep of {x}?
+ What do {x} eat?
  What is the diet of {x}?
  Which prey or plants do {x} live on?
  How do {x} get their food, and what is it?
+ How long do {x} live?
  What is the lifespan of {x}?
  What age can {x} reach in the wild?
  How old do {x} get?

insects: ants; moths; wasps; fruit flies; mosquitoes; silverfish; earwigs; bed bugs; beetles
+ How do I keep {x} out of my house?
  What is a good way to stop {x} from getting indoors?
  My flat is full of {x}; how do I get rid of them?
  How can I drive {x} out of my home without poison?
+ What purpose do {x} serve in nature?
  Are {x} useful for anything?
  What would happen if all {x} disappeared?
  Why does the environment need {x}?
+ Why are there so many {x} this year?
  What explains the sudden increase in {x} this summer?
  I have never seen this many {x}; where do they come from?
  Is it normal that there are more {x} than last year?

health: headaches; stomach cramps; hiccups; nosebleeds; leg cramps; hot flushes; dizzy spells; dry eyes
+ What causes {x}?
  Why do people get {x}?
  Where do {x} come from?
  What are the most common reasons for {x}?
+ What helps against {x} at home?
  How can I treat {x} without medicine?
  Which home remedies relieve {x}?
  I suffer from {x}; what can I do myself?
+ When should I see a doctor about {x}?
  How do I know whether {x} are a sign of something serious?
  At what point do {x} become dangerous?
  Should I be worried about having {x} every day?

nutrition: vitamin D; iron; magnesium; calcium; zinc; vitamin C; iodine; potassium; vitamin B12
+ Which foods contain a lot of {x}?
  What should I eat to get more {x}?
  How can I raise my {x} intake through meals?
  What are the best natural sources of {x}?
+ Can you take too much {x}?
  Is an overdose of {x} dangerous?
  What happens when the body gets more {x} than it needs?
  Is there such a thing as too much {x}?
+ How do I know that I lack {x}?
  What are the signs of a {x} deficiency?
  Which symptoms show that somebody has too little {x}?
  How would I notice that my body has too little {x}?

fitness: running; swimming; rowing; cycling; skipping rope; yoga; climbing; Nordic walking; dancing
+ Does {x} help people lose weight?
  Is {x} effective for losing weight?
  Can {x} help me get rid of belly fat?
  Will I get slimmer if I take up {x}?
+ How do I start {x} as a complete beginner?
  What should someone new to {x} know?
  I have never tried {x}; where do I begin?
  What advice would you give for the first weeks of {x}?
+ Which muscles does {x} train?
  What parts of the body get stronger through {x}?
  Does {x} build muscle in the upper body?
  Will {x} make my legs and arms stronger?

home: bathroom; bedroom; kitchen; attic; hallway; basement; nursery; guest room; laundry room
+ What colour should I paint my {x}?
  Which paint colours suit a small {x}?
  I am repainting the {x}; what shade would look good?
  What is the best wall colour for a {x} with little light?
+ How much does it cost to renovate a {x}?
  What should I budget for a new {x}?
  Is ten thousand enough to redo the {x}?
  How expensive is it to have a {x} remodelled?
+ How do I get rid of mould in my {x}?
  There are black spots on the wall of my {x}; how do I remove them?
  What kills mould in a damp {x}?
  Mould keeps coming back in the {x}; what can I do?

outdoors: tent; rain jacket; rucksack; pair of hiking boots; sleeping bag; bike bag; rain poncho; awning
+ How do I make my old {x} waterproof again?
  What can I use to stop a {x} from letting in water?
  My {x} leaks in the rain; how do I seal it?
  Is there a spray that keeps a worn {x} dry inside?
+ How much should I spend on a {x}?
  What is a sensible price for a {x}?
  How much money does one need for a good {x}?
  What does a decent {x} cost?
+ How do I wash a {x}?
  Can a {x} go in the washing machine?
  What is the proper way of cleaning a muddy {x}?
  My {x} is filthy after the trip; how do I get it clean?

children: toddler; teenager; ten-year-old; grandson; nephew; stepson; goddaughter; six-year-old
+ How do I get my {x} to sleep through the night?
  What helps a {x} who keeps waking up at night?
  My {x} is up every night at three; what can I do?
  How can I improve the sleep of a {x}?
+ What should I give my {x} as a birthday present?
  What is a good gift for a {x}?
  I need a birthday idea for my {x}; any suggestions?
  Which presents make a {x} happy?
+ How do I calm down an angry {x}?
  My {x} has fits of rage; how should I react?
  What works when a {x} is furious?
  What should I do when my {x} starts shouting and throwing things?
"""
