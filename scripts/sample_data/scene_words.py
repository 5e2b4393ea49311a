"""Words of the described scenes: who does what to what, and where.

A block of THEMES is a theme. Its first line is `name: agents | places`, where `people` stands for all of PEOPLE. Each
further line is `verb: objects > a general word for the action`. `[a|b]` are two words for the same thing.
"""

PEOPLE = "a [man|guy]; a [woman|lady]; a [boy|lad]; a girl; two [men|guys]; two [women|ladies]; a couple"
ADJECTIVES = "[old|elderly]; young; tall; smiling; tired; blond; [slim|thin]"
ANIMAL_ADJECTIVES = "[small|little]; [big|large]; wet; spotted; skinny"
CLOTHES = (
    "in a red coat / in red coats; in a [blue|navy] shirt / in [blue|navy] shirts; [with|wearing] a straw hat / "
    "[with|wearing] straw hats; in a green jumper / in green jumpers; [with|wearing] glasses / [with|wearing] glasses"
)

THEMES = """\
kitchen: people | in a [kitchen|home kitchen]; at a [campsite|camping ground]; on a cooking show; behind a food stall
[slicing|cutting up]: an onion; [carrots|some carrots]; a loaf of bread; [tomatoes|some tomatoes] > preparing food
[frying|cooking]: an egg; [fish|some fish]; [mushrooms|some mushrooms]; a steak > making a hot meal
[stirring|mixing]: a pot of soup; [cake batter|batter for a cake]; a bowl of salad; [sauce|a sauce] > working with food
[peeling|taking the skin off]: [potatoes|some potatoes]; an orange; a banana; [garlic|cloves of garlic] > preparing food
[pouring|serving]: [tea|some tea]; [wine|some wine]; [milk|some milk]; a glass of water > handling a drink
[washing|cleaning]: the [dishes|plates]; a frying pan; [lettuce|some lettuce]; a knife > washing something

music: people | on a stage; in a [park|public park]; in a [subway|underground] station; in a living room
[playing|performing on]: the guitar; the piano; the [violin|fiddle]; the flute; the drums > making music
[tuning|adjusting]: a guitar; a harp; a piano; a cello > getting an instrument ready
[singing|performing]: a love song; a folk song; an old hymn; an opera aria > using the voice to perform
[listening to|enjoying]: a [street musician|busker]; a brass band; a choir; a symphony > hearing music
[selling|trying to sell]: old records; concert tickets; a trumpet; song books > trying to sell something

sport: people | on a [field|sports field]; in a [gym|sports hall]; at a summer camp; on a school playground
[kicking|shooting]: a [football|soccer ball]; a rugby ball; a can; a balloon > moving something with a foot
[throwing|tossing]: a baseball; a [frisbee|flying disc]; a basketball; a javelin > making something fly through the air
[lifting|raising]: a barbell; a heavy stone; a trophy; a dumbbell > holding something up
[jumping over|leaping over]: a hurdle; a puddle; a rope; a bench > jumping
[practising|training for]: [judo|some judo]; a handstand; a relay race; a penalty kick > doing sport
[cheering for|applauding]: a runner; a team; a gymnast; a wrestler > watching a sport event

street: people | on a [busy|crowded] street; in front of a [station|railway station]; at a crossing; near a bridge
[riding|travelling on]: a [bicycle|bike]; a [motorcycle|motorbike]; a scooter; a horse > riding
[waiting for|standing and waiting for]: a bus; a taxi; a tram; a friend > waiting
[pushing|wheeling]: a pram; a shopping cart; a wheelbarrow; a broken car > pushing something that has wheels
[carrying|lugging]: a [suitcase|travel bag]; a ladder; a rolled-up carpet; shopping bags > carrying something
[photographing|taking pictures of]: a [church|chapel]; a street artist; a statue; the sunset > using a camera
[asking|questioning]: a policeman for directions; a driver about the fare; a guide about a museum > talking to someone

garden: people | in a [garden|yard]; on a farm; behind a [house|cottage]; in an orchard
planting: [trees|young trees]; [tulips|tulip bulbs]; a rose bush; [cabbages|some cabbages] > gardening
[picking|gathering]: [apples|some apples]; strawberries; wild flowers; [grapes|some grapes] > harvesting
[watering|giving water to]: the lawn; a row of beans; potted plants; a young tree > watering plants
[feeding|giving food to]: [chickens|hens]; a goat; a [pony|small horse]; ducks > feeding animals
[digging|making]: a hole; a ditch; a vegetable bed; a small pond > working with soil
[cutting|trimming]: the grass; a meadow; the hedge; nettles > cutting plants

office: people | in an office; in a [library|reading room]; in a classroom; in a waiting room
[reading|studying]: a newspaper; a [thick|heavy] book; a map; a letter > reading
[typing|writing]: an email; a report; an exam; a shopping list > writing
[repairing|fixing]: a printer; a laptop; a projector; a broken chair > repairing something
[drawing|sketching]: a [face|portrait]; a diagram; a floor plan; a dragon > making a drawing
[sorting|organising]: old files; postcards; coloured pens; piles of books > putting things in order
[explaining|describing]: a graph; a grammar rule; a chess opening; a new plan > telling others something

water: people | at the [beach|seaside]; on a [lake|calm lake]; by a river; near a [harbour|port]
[paddling|steering]: a canoe; a kayak; a rubber boat; a raft > moving in a boat
[catching|reeling in]: a big fish; a crab; an eel; a [small|little] fish > fishing
[building|making]: a [sandcastle|castle of sand]; a stone dam; a wooden raft; a snow fort > building something
[painting|putting paint on]: a [boat|small boat]; a wooden fence; a signpost; a lighthouse > painting something
[collecting|gathering]: [shells|seashells]; driftwood; plastic bottles; smooth pebbles > picking things up
[watching|looking at]: the waves; a [ship|passing ship]; seagulls; a swimming race > looking at something

workshop: people | in a [workshop|small workshop]; in a garage; on a building site; in a barn
sawing: a plank; a pipe; a log; a sheet of plywood > using a saw
[hammering|driving]: a nail into a beam; a post into the ground; a wedge into a log > hitting something with a tool
welding: two pipes; a gate; a bicycle frame; a steel frame > joining metal
[polishing|shining]: a brass lamp; a car; a pair of boots; a wooden table > making something shine
measuring: a board; a window frame; a rope; a wall > finding out the size of something
[loading|filling]: a van with boxes; a truck with gravel; a trailer with hay > loading a vehicle

dogs: a [dog|hound]; a [puppy|young dog]; two dogs; a poodle; a greyhound | on the grass; \
on a [beach|sandy beach]; in the snow; in a [yard|backyard]
[chasing|running after]: a ball; a cat; a squirrel; a [bicycle|bike]; a duck > running
[chewing on|gnawing at]: a bone; a [slipper|house shoe]; a stick; a rope > chewing something
[barking at|yapping at]: a postman; a vacuum cleaner; a cow; a snowman > making noise
[swimming after|paddling after]: a stick; a duck; a rubber ball; a boat > moving through water
[digging up|unearthing]: a bone; a flower bed; an old shoe; a toy > digging
[sleeping next to|dozing beside]: a haystack; a baby; a sheep; a tent > resting

cats: a [cat|house cat]; a [kitten|young cat]; two cats; a black cat; a tabby | on a [sofa|couch]; on a windowsill; \
under a [table|kitchen table]; on a balcony
[playing with|batting at]: a ball of wool; a shoelace; a paper bag; a feather > playing
[watching|staring at]: a bird; a goldfish; a television; a mouse > looking at something
[licking|cleaning]: a front paw; a hind leg; an empty plate; a spoon > using its tongue
[sleeping on|napping on]: a cushion; a pile of laundry; a keyboard; a newspaper > sleeping
[scratching|clawing]: the curtains; a cardboard box; an armchair; a wooden post > using its claws
[drinking|lapping up]: [milk|some milk]; water from a bowl; cream; melted ice > drinking

mountain: people | on a [mountain|mountainside]; in the [woods|forest]; at the edge of a cliff; in deep snow
[climbing|going up]: a [rock|boulder]; a steep path; a rope ladder; a tree > climbing
[putting up|setting up]: a tent; a shelter; a hammock; a flagpole > setting something up
[pulling|dragging]: a sledge; a log; a dog sled; a heavy rucksack > pulling something
[lighting|starting]: a [fire|campfire]; a lantern; a stove; a torch > making a flame
following: a guide; deer tracks; a stream; a mule > walking
[crossing|walking across]: a rope bridge; a frozen pond; a [stream|brook]; a field of snow > getting across something

market: people | at a market; in a [shop|small shop]; at a [fair|country fair]; in a village square
[buying|paying for]: [cheese|some cheese]; a basket; [flowers|a bunch of flowers]; a carpet > spending money
weighing: [peaches|some peaches]; a pumpkin; [shrimp|some shrimp]; [nuts|some nuts] > weighing something
[tasting|trying]: [honey|some honey]; an olive; a slice of melon; home-made jam > tasting food
trying on: a [hat|wide hat]; a leather jacket; sandals; a silk scarf > putting on clothes
[juggling|performing with]: oranges; burning torches; clubs; glass balls > entertaining people
unpacking: [pottery|clay pots]; eggs; second-hand clothes; toys > unpacking goods

home: people | in a bedroom; in a [living room|lounge]; on a balcony; in a hallway
[folding|putting away]: [towels|some towels]; a [blanket|woollen blanket]; shirts; a paper map > folding something
[hanging up|putting up]: a picture; [curtains|new curtains]; wet clothes; a mirror > hanging something up
[brushing|combing]: a [dog|pet dog]; long hair; a [doll's|toy doll's] hair; a cat > using a brush
[opening|unwrapping]: a [present|gift]; a parcel; a box of chocolates; a crate > opening something
[putting together|assembling]: a bookshelf; a [puzzle|jigsaw puzzle]; a model plane; a cot > putting parts together
[dusting|wiping]: a lamp; the shelves; a globe; picture frames > cleaning
"""
