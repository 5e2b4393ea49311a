"""Questions on work, study, money, technology and the world. The format is that of `questions_home`."""

FAMILIES = """
programming: Python; Java; Rust; Go; Kotlin; Haskell; JavaScript; Ruby; Swift; Perl
+ How do I learn {x} from scratch?
  What is the best way to start programming in {x}?
  I have never written code; how should I go about learning {x}?
  Which course or book teaches {x} to absolute beginners?
+ How do I read a text file line by line in {x}?
  What is the shortest {x} code that goes through the lines of a file?
  In {x}, how can I process a file one line at a time?
  Is there a standard way to loop over the rows of a text file in {x}?
+ What is {x} mainly used for?
  What do people build with {x}?
  What kind of software is usually written in {x}?
  In what areas is {x} a popular choice?

programming: sorting algorithm; hash table; linked list; binary tree; web server; compiler; parser; database index
+ How does a {x} work?
  Can someone explain the idea behind a {x} in simple terms?
  What happens inside a {x}?
  I do not understand what a {x} does; how would you describe it?
+ How do I write my own {x}?
  What steps are needed to build a {x} myself?
  Is it hard to program a {x} from nothing?
  Where should I begin if I want to code a {x}?
+ Why is my {x} so slow?
  How can I speed up a {x}?
  My {x} takes forever; how do I make it faster?
  What are common performance problems of a {x}?

technology: laptop; phone; tablet; smartwatch; desktop computer; e-reader; game console; television; printer
+ Why has my {x} become so slow?
  What can I do about a {x} that reacts slowly?
  My old {x} takes ages to start; how do I speed it up?
  How do I make my {x} run like new?
+ How do I erase my data before selling my {x}?
  What should I delete from a {x} before I give it away?
  I am selling my {x}; how do I make sure nobody sees my files?
  Is a factory reset enough to wipe a {x}?
+ How long does a {x} usually last?
  After how many years should I replace my {x}?
  What is the average lifetime of a {x}?
  For how many years can one use a {x}?

technology: email account; bank account; online photo album; cloud drive; gaming profile; work calendar; web shop; blog
+ How do I find out whether my {x} was hacked?
  Did someone break into my {x}?
  What are the signs that strangers have access to my {x}?
  I think somebody else is using my {x}; how can I check?
+ I forgot the password of my {x}; how do I get back in?
  How can I reset the password for my {x}?
  What do I do when I am locked out of my {x}?
  Is there any way to recover a {x} without the old password?
+ How do I close my {x} for good?
  What is the way to delete a {x} permanently?
  I no longer want my {x}; how do I shut it down?
  Can I remove my {x} so that nothing of it is left?

languages: Spanish; Japanese; German; Arabic; Portuguese; Korean; Finnish; Turkish; Swahili; Welsh
+ How long does it take to become fluent in {x}?
  How many months of study does it take before one speaks {x} well?
  Is a year enough to reach a good level of {x}?
  When can I expect to hold a real conversation in {x}?
+ Is {x} grammar difficult?
  How complicated are the rules of {x}?
  Do learners struggle with the grammar of {x}?
  What makes {x} grammar easy or hard?
+ Where can I find somebody to practise {x} with?
  How do I meet native speakers of {x}?
  I need a conversation partner for {x}; where do I look?
  Which websites bring learners together with people who speak {x}?

music: guitar; piano; violin; cello; flute; trumpet; ukulele; clarinet; accordion
+ Can I learn the {x} as an adult?
  Is forty too old to take up the {x}?
  I am over thirty; is it too late to begin the {x}?
  Can people who begin the {x} late still learn it?
+ How much does a decent {x} for beginners cost?
  What should I pay for a first {x}?
  Is a cheap {x} good enough to start with?
  I do not have much money; how little can I spend on a first {x}?
+ How can I practise the {x} without disturbing my neighbours?
  My neighbours complain about my {x}; what can I do?
  Is there a way to make a {x} quieter at home?
  How do people in flats play the {x} in peace?

study: chemistry; statistics; calculus; anatomy; economics; linear algebra; organic chemistry; geography; Latin
+ How do I prepare for a {x} exam in one week?
  What is the best plan when only seven days are left before the {x} test?
  I have a week to study {x}; how should I use it?
  Is it possible to pass {x} with a few days of work?
+ What can I do with a degree in {x}?
  Which jobs are open to people who studied {x}?
  What career can I have after studying {x}?
  Where do {x} graduates usually work?
+ Which book explains {x} best?
  Can you recommend a clear textbook on {x}?
  What should I read if I want to understand {x}?
  Is there a good introduction to {x} for self-study?

careers: nurse; pilot; architect; librarian; translator; baker; electrician; judge; radiologist; beekeeper
+ How do I become a {x}?
  What training does a {x} need?
  Which steps lead to a job as a {x}?
  What do I have to study if I want to work as a {x}?
+ How much does a {x} earn?
  What is the usual salary of a {x}?
  Is the work of a {x} well paid?
  How much money does a {x} make in a year?
+ What does a typical day of a {x} look like?
  What does a {x} do all day?
  How does a {x} spend the working hours?
  Can a {x} tell me what the daily work is like?

money: mortgage; car loan; student loan; credit card debt; business loan; personal loan; overdraft; home loan
+ Is it smart to pay off a {x} early?
  Should I use my savings to get rid of my {x} sooner?
  Does it make sense to repay a {x} ahead of time?
  What are the advantages of clearing a {x} before it is due?
+ What happens if I cannot make the payments on my {x}?
  I have lost my job and cannot pay my {x}; what now?
  What are the consequences of falling behind on a {x}?
  What will the bank do if I stop paying my {x}?
+ Can I move my {x} to another bank?
  Is it possible to transfer a {x} to a different lender?
  How do I switch the bank that holds my {x}?
  What does it take for another lender to take over my {x}?

money: index funds; government bonds; gold; silver; shares; farmland; savings certificates; old coins; rental flats
+ Is it risky to invest in {x}?
  How safe is money that is put into {x}?
  Can I lose everything with {x}?
  How likely are losses when one buys {x}?
+ How do I invest in {x} with little money?
  Can I start buying {x} with a hundred a month?
  What is the smallest sum with which one can get into {x}?
  I do not have much capital; how could I still own some {x}?
+ Do I have to pay tax on profits from {x}?
  How are gains from {x} taxed?
  What share of my {x} earnings goes to the state?
  Must I declare the money that I make with {x}?

work: boss; colleague; client; landlord; neighbour; flatmate; supervisor; business partner; tenant
+ How do I tell my {x} that I disagree?
  What is a polite way to contradict a {x}?
  My {x} is wrong; how do I say so without a fight?
  How can I object to something that my {x} says and stay friendly?
+ How do I thank my {x} for a big favour?
  What is a nice way to show a {x} that I am grateful?
  My {x} helped me a lot; how can I express my thanks?
  How does one say thanks to a {x} who has been very kind?
+ How do I deal with a {x} who never answers messages?
  My {x} ignores my emails; what should I do?
  What can I do when a {x} does not reply?
  How do I get a response from a silent {x}?

space: Mars; Venus; Jupiter; Saturn; Titan; Mercury; Neptune; Pluto; Uranus
+ How long would it take to fly to {x}?
  How many months or years does a spacecraft need to get to {x}?
  What is the travel time from Earth to {x}?
  If we set off today, when would we reach {x}?
+ Could humans ever live on {x}?
  Is life on {x} possible for people?
  Will there be a colony on {x} one day?
  Can people make a home on {x} some day?
+ Who discovered {x}, and when?
  In which year was {x} first described?
  Since when have people known about {x}?
  Which astronomer was the first to write about {x}?

history: Roman Empire; Ottoman Empire; Mongol Empire; Inca Empire; Aztec Empire; Han dynasty; Mali Empire; Khmer Empire
+ Why did the {x} fall?
  What led to the end of the {x}?
  What were the reasons for the collapse of the {x}?
  How did the {x} come to an end?
+ Who founded the {x}?
  How did the {x} begin?
  Which ruler started the {x}?
  What are the origins of the {x}?
+ How was daily life in the {x}?
  What was it like to live in the {x}?
  How did ordinary people spend their days in the {x}?
  What did common families in the {x} do and eat?

weather: lightning; hail; fog; thunder; dew; frost; snow; sleet; freezing rain
+ How does {x} form?
  Where does {x} come from?
  What has to happen in the air for {x} to appear?
  Can you explain the science behind {x}?
+ Can {x} be predicted?
  How do forecasters know that {x} is coming?
  Is there a way of seeing {x} coming hours before?
  Can weather services tell in advance that {x} will occur?
+ Where in the world is {x} most common?
  Which places get the most {x}?
  What part of the earth sees {x} more than any other?
  In what country can one see {x} most often?

photography: the night sky; fireworks; waterfalls; birds; newborn babies; street scenes; flowers; sports; old buildings
+ Which camera settings are best for {x}?
  How should I set my camera when I photograph {x}?
  What shutter speed and aperture do I need for {x}?
  What are the right settings on a camera for pictures of {x}?
+ What lens do I need to photograph {x}?
  Is a zoom lens right for pictures of {x}?
  Which lens do professionals use for {x}?
  I want to take pictures of {x}; which lens should I buy?
+ How can I sell my photos of {x}?
  Is there a market for pictures of {x}?
  Who pays money for photographs of {x}?
  Can I make a living from taking pictures of {x}?

art: watercolour painting; pottery; oil painting; woodcarving; calligraphy; knitting; screen printing; bookbinding
+ What do I need to start with {x}?
  Which materials should a beginner in {x} buy?
  What equipment does one need for {x}?
  I would like to try {x}; what belongs on my shopping list?
+ Can one make money with {x}?
  Is it possible to live from {x}?
  Do any people earn their living through {x}?
  How profitable is {x} as a small business?
+ How old is {x}, and where did it begin?
  What is the history of {x}?
  When and where was {x} invented?
  Since when have people practised {x}?

sports: chess; tennis; badminton; table tennis; golf; fencing; volleyball; cricket; squash; darts
+ What are the basic rules of {x}?
  How is {x} played?
  Can somebody explain {x} to a person who has never seen it?
  I am watching {x} for the first time; how does it work?
+ How can I get better at {x}?
  What is the fastest way to improve my {x}?
  Which exercises make one a stronger {x} player?
  I keep losing at {x}; how should I train?
+ At what age should a child start {x}?
  Is six too young for {x}?
  When can kids begin to play {x}?
  How old must a child be before joining a {x} club?

books: Jane Austen; Leo Tolstoy; Toni Morrison; Franz Kafka; Virginia Woolf; Jules Verne; Mary Shelley; Charles Dickens
+ Which book by {x} should I read first?
  Where should a newcomer to {x} start?
  What is the best introduction to the novels of {x}?
  I have never read {x}; which title would you begin with?
+ Why is {x} considered a great writer?
  What is so special about {x}?
  Why do critics praise the work of {x}?
  What makes the books of {x} important?
+ Which films are based on the books of {x}?
  Has any novel by {x} been made into a movie?
  What are the best screen versions of stories by {x}?
  Are there good adaptations of {x} for the cinema?

cars: clutch; exhaust; gearbox; radiator; alternator; fuel pump; starter motor; handbrake; steering rack
+ How do I know that the {x} of my car must be replaced?
  What are the signs of a worn {x} in a car?
  When is it time for a new {x} on a car?
  After how many miles does a car need its {x} changed?
+ How much does it cost to have the {x} of a car repaired?
  What do garages charge for fixing the {x}?
  Is it expensive to get the {x} of an old car repaired?
  What price should I expect from a mechanic for work on the {x}?
+ Can I repair the {x} of my car myself?
  Is it possible to fix the {x} at home without a mechanic?
  Which tools do I need to work on the {x} on my own?
  How hard is it for an amateur to mend the {x} of a car?

events: wedding; housewarming; baby shower; class reunion; retirement party; graduation; christening; engagement party
+ How much should I spend on a gift for a {x}?
  What is a reasonable sum for a {x} present?
  Is fifty too little for a gift at a {x}?
  How expensive should a {x} gift be?
+ What should I wear to a {x}?
  Which clothes are right for a {x}?
  Are jeans acceptable at a {x}?
  I am invited to a {x}; how do I dress?
+ How do I politely turn down an invitation to a {x}?
  What can I say if I do not want to go to a {x}?
  I cannot attend a {x}; how do I decline without being rude?
  How do I say no to a {x} without hurting anyone?

energy: heat pump; wood stove; wind turbine; gas boiler; home battery; solar water heater; ventilation system
+ Is it worth getting a {x} for an old house?
  Does a {x} make sense in an old building?
  My house is a hundred years old; should I put in a {x}?
  Would a {x} pay off in an older home?
+ How long does it take to install a {x}?
  How many days do workers need to put in a {x}?
  Is the fitting of a {x} done in a week?
  When will my {x} be ready once the work has begun?
+ How often does a {x} need servicing?
  What maintenance does a {x} require?
  Do I have to have my {x} checked every year?
  How much care does a {x} need after it is installed?
"""
